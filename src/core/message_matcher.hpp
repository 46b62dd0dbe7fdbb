// SPDX-License-Identifier: BSD-3-Clause
//
// Which receive gets which message, by MPI's rules: among the messages that fit a receive the one that arrived first,
// among the receives that a message fits the one that was posted first. Messages of one sender, communicator and tag
// are therefore received in the order in which they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include <paracel/messages.hpp>

namespace paracel {

/// Thread-safety: none
/// Cost: O(unmatched messages, or posted receives) per operation.
class message_matcher {
 public:
  using ticket = std::uint64_t;

  /// A message has arrived.
  void arrive(received_message message) {
    for (auto& [t, r] : posted_) {
      if (r.message || !fits(r.from, message.from)) continue;
      r.message = std::move(message);
      return;
    }
    waiting_.push_back(std::move(message));
  }
  /// Asks for a message. The ticket is valid until `take` returns the message, or `give_up`.
  [[nodiscard]] ticket post(const message_address& from) {
    auto& r = posted_[++last_];
    r.from = from;
    for (auto m = waiting_.begin(); m != waiting_.end(); ++m) {
      if (!fits(from, m->from)) continue;
      r.message = std::move(*m);
      waiting_.erase(m);
      break;
    }
    return last_;
  }
  /// The message of a ticket, if it has arrived.
  [[nodiscard]] std::optional<received_message> take(ticket t) {
    const auto r = posted_.find(t);
    if (r == posted_.end() || !r->second.message) return std::nullopt;
    auto message = std::move(r->second.message);
    posted_.erase(r);
    return message;
  }
  /// Cancels a ticket; its message is dropped if it has arrived.
  void give_up(ticket t) { posted_.erase(t); }
  [[nodiscard]] message_address asked(ticket t) const { return posted_.at(t).from; }
  /// Messages that match no receive yet.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  struct receive {
    message_address from;
    std::optional<received_message> message;
  };
  static bool fits(const message_address& wanted, const message_address& m) noexcept {
    return wanted.communicator == m.communicator && (wanted.rank == any_source || wanted.rank == m.rank) &&
           (wanted.tag == any_tag || wanted.tag == m.tag);
  }

  std::list<received_message> waiting_;
  std::map<ticket, receive> posted_;
  ticket last_ = 0;
};

}  // namespace paracel
