// SPDX-License-Identifier: BSD-3-Clause
//
// Which receive gets which message, by MPI's rules: among the messages that fit a receive the one that arrived first,
// among the receives that a message fits the one that was posted first. Messages of one sender, communicator and tag
// are therefore received in the order in which they were sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include <paracel/detail/messages.hpp>

namespace paracel {

/// Thread-safety: none
/// Cost: O(unmatched messages, or posted receives) per operation.
class message_matcher {
 public:
  using ticket = std::uint64_t;

  /// A message has arrived.
  void arrive(received_message message) {
    std::list<numbered> one;
    one.push_back({++arrivals_, std::move(message)});
    offer(one);
    waiting_.splice(waiting_.end(), one);
  }
  /// Asks for a message. The ticket is valid until `take` returns the message, or `give_up`.
  [[nodiscard]] ticket post(const message_address& from) {
    auto& r = posted_[++last_];
    r.from = from;
    const auto m = std::ranges::find_if(waiting_, [&](const numbered& w) { return fits(from, w.message.from); });
    if (m != waiting_.end()) r.matched.splice(r.matched.end(), waiting_, m);
    return last_;
  }
  /// The message of a ticket, if it has arrived.
  [[nodiscard]] std::optional<received_message> take(ticket t) {
    const auto r = posted_.find(t);
    if (r == posted_.end() || r->second.matched.empty()) return std::nullopt;
    auto message = std::move(r->second.matched.front().message);
    posted_.erase(r);
    return message;
  }
  /// Cancels a ticket as if it had never been posted: a message that has arrived for it goes to the next receive.
  void give_up(ticket t) noexcept {
    const auto r = posted_.find(t);
    if (r == posted_.end()) return;
    auto matched = std::move(r->second.matched);
    posted_.erase(r);
    if (matched.empty()) return;
    offer(matched);
    if (matched.empty()) return;
    const auto number = matched.front().number;
    const auto later = std::ranges::find_if(waiting_, [&](const numbered& w) { return w.number > number; });
    waiting_.splice(later, matched);
  }
  /// Whether `take` would return it.
  [[nodiscard]] bool has(ticket t) const {
    const auto r = posted_.find(t);
    return r != posted_.end() && !r->second.matched.empty();
  }
  [[nodiscard]] message_address asked(ticket t) const { return posted_.at(t).from; }
  /// Messages that match no receive yet.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  struct numbered {
    std::uint64_t number;  ///< in the order of arrival
    received_message message;
  };
  struct receive {
    message_address from;
    std::list<numbered> matched;  ///< at most one
  };
  static bool fits(const message_address& wanted, const message_address& m) noexcept {
    return wanted.communicator == m.communicator && (wanted.rank == any_source || wanted.rank == m.rank) &&
           (wanted.tag == any_tag || wanted.tag == m.tag);
  }
  /// Offers a message to each receive, the oldest first. One that has a later message takes this one, and the later one
  /// is offered to the rest. On return `one` has the message that nobody took, if any.
  void offer(std::list<numbered>& one) noexcept {
    for (auto& [t, r] : posted_) {
      if (!fits(r.from, one.front().message.from)) continue;
      if (!r.matched.empty() && r.matched.front().number < one.front().number) continue;
      r.matched.swap(one);
      if (one.empty()) return;
    }
  }

  std::list<numbered> waiting_;  // by number
  std::map<ticket, receive> posted_;
  ticket last_ = 0;
  std::uint64_t arrivals_ = 0;
};

}  // namespace paracel
