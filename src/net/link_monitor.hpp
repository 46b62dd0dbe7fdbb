// SPDX-License-Identifier: BSD-3-Clause
//
// When a line to a thread of a server is given up. A connection that breaks is made anew by the transport, and what was
// on its way is lost: nobody says so, an answer is just late.
#pragma once

#include <algorithm>
#include <chrono>

namespace paracel::net {

/// A server that lives answers within milliseconds. What is later than this is asked after.
inline constexpr std::chrono::milliseconds late{1000};

/// What is done about one line over which an answer is late: pings first, and a new connection when nothing at all
/// comes for some time. That is for what no refused ping shows; a thread that is silent for so long may also be in a
/// user function, or stopped (a server that is silent to the scheduler as well is replaced before), or a large message
/// takes its time. So the time doubles with each attempt, six times at most, until a connection is known to have
/// broken.
///
/// Thread-safety: none. Times are of any clock of the caller's that only goes forward.
class link_monitor {
 public:
  enum class action { ping, renew };

  link_monitor() noexcept = default;
  explicit link_monitor(std::chrono::milliseconds silent) noexcept : silent_(silent) {}

  /// An answer is late. `ping` also when one is unanswered: it may be lost with its connection.
  [[nodiscard]] action look(std::chrono::nanoseconds now) noexcept {
    if (!asked_) {
      asked_ = true;
      since_ = now;
    } else if (now - since_ >= silent_ * (1U << std::min(renewals_, most_doublings))) {
      return action::renew;
    }
    return action::ping;
  }
  /// The other side lives.
  void answered() noexcept { asked_ = false; }
  /// It has refused what came over a new connection.
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
