// SPDX-License-Identifier: BSD-3-Clause
//
// How a late task divides its remaining chunks among idle ones: so that all would finish at the same time if each
// continued at its present speed. A helper is granted no more of its share than what it can compute until the owner
// checks again, because a chunk that was granted does not move again: the rest waits, in case a task becomes slower or
// others become idle. If several tasks are late, each uses its part of a helper's time only. With half of the share and
// all of a helper's time, tasks that are late at random gave so much that their helpers ended last: supersteps took
// 1.5 times the ideal time instead of 1.1 with 8 tasks, and 4 times with 32 (tool/bench/README.md, "Work stealing").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace paracel {

struct chunk_helper {
  std::size_t rank = 0;
  std::size_t busy = 0;  ///< chunks that it has been given and not returned
  double seconds = 0;    ///< that it needs per chunk; 0: unknown
  double ready = 0;      ///< seconds until it has finished its own chunks
};

/// Assumed delay of a chunk that is sent to another task.
inline constexpr double chunk_travel_seconds = 200e-6;

/// `own`: seconds that the owner needs per chunk; 0: unknown. `late`: number of tasks that give chunks to the helpers,
/// this one included. Returns: how many chunks to give each helper now. Cost: O((open + helpers) log helpers)
inline std::vector<std::size_t> chunk_shares(std::size_t open, double own, std::span<const chunk_helper> helpers,
                                             std::size_t late = 1) {
  double known = own;
  for (const auto& h : helpers) known = known > 0 ? known : h.seconds;
  if (!(known > 0)) known = 10 * chunk_travel_seconds;
  if (!(own > 0)) own = known;
  const auto seconds_of = [&](const chunk_helper& h) {
    return (h.seconds > 0 ? h.seconds : known) * static_cast<double>(late);
  };

  using candidate = std::pair<double, std::size_t>;  // when it would have finished one more; helper, or the owner
  std::priority_queue<candidate, std::vector<candidate>, std::greater<>> next;
  next.emplace(own, helpers.size());
  for (std::size_t i = 0; i < helpers.size(); ++i)
    next.emplace(std::max(chunk_travel_seconds, helpers[i].ready) +
                     static_cast<double>(helpers[i].busy + 1) * seconds_of(helpers[i]),
                 i);
  std::vector<std::size_t> share(helpers.size());
  for (; open > 0; --open) {
    const auto [when, i] = next.top();
    next.pop();
    if (i < helpers.size()) ++share[i];
    next.emplace(when + (i < helpers.size() ? seconds_of(helpers[i]) : own), i);
  }
  // The owner checks after its next chunk, and hears of results when they have travelled.
  const double until_next = 2 * std::max(own, 2 * chunk_travel_seconds);
  for (std::size_t i = 0; i < helpers.size(); ++i) {
    const auto busy_time = std::max(0.0, until_next - helpers[i].ready);
    const auto enough = static_cast<std::size_t>(std::min(1e6, std::ceil(busy_time / seconds_of(helpers[i]))));
    share[i] = std::min(share[i], enough - std::min(enough, helpers[i].busy));
  }
  return share;
}

}  // namespace paracel
