// SPDX-License-Identifier: BSD-3-Clause
//
// When to give up a connection to a thread of a server. The transport reconnects when a connection breaks, and messages
// in flight are lost: there is no notification, a reply is just late.
#pragma once

#include <algorithm>
#include <chrono>

namespace paracel::net {

/// A live server answers within milliseconds. Later replies are inquired about.
inline constexpr std::chrono::milliseconds late{1000};

/// The action for one connection over which a reply is late: first pings, then a new connection when nothing at all
/// arrives for some time. The latter is for cases that no rejected ping reveals; a thread silent for so long may also
/// be in a user function, or stopped (a server that is silent to the scheduler as well is replaced before), or
/// transferring a large message. So the time doubles with each attempt, six times at most, until a connection is known
/// to have broken.
///
/// Thread-safety: none. Times are of any monotonic clock of the caller.
class link_monitor {
 public:
  enum class action { ping, renew };

  link_monitor() noexcept = default;
  explicit link_monitor(std::chrono::milliseconds silent) noexcept : silent_(silent) {}

  /// A reply is late. `ping` even when one is unanswered: it may be lost with its connection.
  [[nodiscard]] action look(std::chrono::nanoseconds now) noexcept {
    if (!asked_) {
      asked_ = true;
      since_ = now;
    } else if (now - since_ >= silent_ * (1U << std::min(renewals_, most_doublings))) {
      return action::renew;
    }
    return action::ping;
  }
  /// The other side is alive.
  void answered() noexcept { asked_ = false; }
  /// It has rejected what came over a new connection.
  void broke() noexcept {
    asked_ = false;
    renewals_ = 0;
  }
  void renewed() noexcept {
    asked_ = false;
    ++renewals_;
  }

 private:
  static constexpr unsigned most_doublings = 6;

  std::chrono::milliseconds silent_{5000};
  bool asked_ = false;  // since `since_`
  std::chrono::nanoseconds since_{};
  unsigned renewals_ = 0;  // since it is known to have broken
};

}  // namespace paracel::net
