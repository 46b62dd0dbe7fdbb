// SPDX-License-Identifier: BSD-3-Clause
//
// Whether what several clients saw of one object can be put in one order: each client's operations in the order they
// were made, none before one that was answered before it was sent, and every answer the one that a plain object gives.
//
// Source: Wing & Gong, "Testing and verifying concurrent objects" (1993): depth first over the orders that time allows,
// remembering the (progress, state) pairs that lead nowhere, as Lowe (2017) does.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace paracel::test {

/// Not answered: nobody knows whether it was carried out. Only the last operation of a client may be so.
inline constexpr auto never = std::numeric_limits<std::int64_t>::max();

/// An operation and when it was sent and answered, on one clock.
template <class Operation>
struct timed {
  Operation operation;
  std::int64_t sent = 0;
  std::int64_t answered = 0;
};

/// `clients[c]` are client c's operations on one object, in the order in which that client made them.
/// `apply(state, operation)` carries the operation out and says whether it gives the answer that was recorded. One that
/// was never answered may have its place anywhere after it was sent, or nowhere. State: comparable with <. Cost: in the
/// worst case exponential in the number of operations that overlap; answers that say much about the state (a version)
/// keep it near linear.
template <class State, class Operation, class Apply>
bool is_linearizable(const std::vector<std::vector<timed<Operation>>>& clients, const State& initial,
                     const Apply& apply) {
  using progress = std::vector<std::uint32_t>;
  std::set<std::pair<progress, State>> dead;
  progress done(clients.size(), 0);

  // What may come next: of each client the next one, unless another's next was answered before it was sent.
  const auto step = [&](const auto& self, const State& state) -> bool {
    auto first_answer = never;
    bool finished = true;
    for (std::size_t c = 0; c < clients.size(); ++c) {
      if (done[c] == clients[c].size()) continue;
      const auto answered = clients[c][done[c]].answered;
      if (answered != never) finished = false;
      first_answer = std::min(first_answer, answered);
    }
    if (finished) return true;
    if (dead.contains({done, state})) return false;
    for (std::size_t c = 0; c < clients.size(); ++c) {
      if (done[c] == clients[c].size() || clients[c][done[c]].sent > first_answer) continue;
      auto after = state;
      if (!apply(after, clients[c][done[c]].operation)) continue;
      ++done[c];
      if (self(self, after)) return true;
      --done[c];
    }
    dead.insert({done, state});
    return false;
  };
  return step(step, initial);
}

}  // namespace paracel::test
