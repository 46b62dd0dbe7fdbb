// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the observations of several clients on one object can be explained by one sequential order: each client's
// operations in their order, none before one that was answered before it was sent, and every reply that of a
// sequential object.
//
// Source: Wing & Gong, "Testing and verifying concurrent objects" (1993): depth-first search over the orders that are
// consistent with real time, remembering the (progress, state) pairs that lead nowhere, as in Lowe (2017).
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

/// Not answered: it is unknown whether the operation was executed. Only a client's last operation may be unanswered.
inline constexpr auto never = std::numeric_limits<std::int64_t>::max();

/// An operation and when it was sent and answered, on one clock.
template <class Operation>
struct timed {
  Operation operation;
  std::int64_t sent = 0;
  std::int64_t answered = 0;
};

/// `clients[c]` are client c's operations on one object, in their order. `apply(state, operation)` executes the
/// operation and returns whether it gives the recorded reply. An unanswered operation may be placed anywhere after it
/// was sent, or nowhere. State: comparable with <. Cost: in the worst case exponential in the number of overlapping
/// operations; replies that determine most of the state (a version) keep it nearly linear.
template <class State, class Operation, class Apply>
bool is_linearizable(const std::vector<std::vector<timed<Operation>>>& clients, const State& initial,
                     const Apply& apply) {
  using progress = std::vector<std::uint32_t>;
  std::set<std::pair<progress, State>> dead;
  progress done(clients.size(), 0);

  // Candidates for the next operation: each client's next one, unless another's next one was answered before it was
  // sent.
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
