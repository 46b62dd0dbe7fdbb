// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "net/clock_source.hpp"
#include "server/request/server_load.hpp"
#include "server/store/partition_load.hpp"

namespace paracel::srv {

/// The load of a server's partitions in the last seconds, from counters that only grow. It is measured since the
/// beginning of the window before the current one, and from the beginning again in each epoch: other partitions are
/// asked for here then.
/// Thread-safety: none. Cost: 128 KiB; of a look one pass over the partitions.
class load_windows {
 public:
  using time_point = net::clock_source::time_point;
  static constexpr std::chrono::seconds window{4};  // so of the last 4 to 8 s

  /// `counted_at(partition)`: partition_load::at of those of every thread. `own`: those that are served here.
  template <class Counted>
  server_load look(time_point now, std::uint32_t epoch, unsigned threads, const std::bitset<partition_count>& own,
                   const Counted& counted_at) {
    std::vector<std::uint32_t> times(partition_count);
    std::vector<std::uint64_t> bytes(partition_count);
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      const auto c = counted_at(static_cast<std::uint16_t>(p));
      times[p] = c.times;
      bytes[p] = c.bytes;
    }
    if (before_.empty() || epoch != epoch_) {
      epoch_ = epoch;
      before_ = current_ = times;
      before_at_ = current_at_ = now;
    } else if (now - current_at_ >= window) {
      before_ = std::exchange(current_, times);
      before_at_ = std::exchange(current_at_, now);
    }
    server_load load;
    load.epoch = epoch;
    load.seconds = std::chrono::duration<double>(now - before_at_).count();
    load.threads.resize(threads);
    if (load.seconds <= 0) return load;
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      const auto grown = static_cast<std::uint32_t>(times[p] - before_[p]);
      if (grown == 0 || !own[p]) continue;
      const double keys = static_cast<double>(grown) * partition_load::one_of / load.seconds;
      load.threads[p % threads] += keys;
      load.partitions.push_back({static_cast<std::uint16_t>(p), keys, bytes[p]});
    }
    const auto kept = std::min(load.partitions.size(), server_load::most_partitions);
    std::ranges::partial_sort(load.partitions, load.partitions.begin() + static_cast<std::ptrdiff_t>(kept),
                              [](const auto& a, const auto& b) { return a.keys > b.keys; });
    load.partitions.resize(kept);
    return load;
  }

 private:
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> before_;   // the counters when the window before the current one began,
  std::vector<std::uint32_t> current_;  // and when the current one did
  time_point before_at_{};
  time_point current_at_{};
};

}  // namespace paracel::srv
