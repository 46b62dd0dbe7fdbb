// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <paracel/error.hpp>

#include "core/membership.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"

namespace paracel::srv {

/// The channels of a port to threads of servers, by address, for requests that may be repeated: each is answered once,
/// and the owner repeats what is unanswered. A channel is a socket that reconnects forever, so those to servers that
/// were replaced, or have left, are dropped with the membership.
///
/// A connection over which nothing has been answered for half a second may have fallen silent: later requests use a new
/// one. The thread may as well be busy, so the old one is kept for its replies, and the time doubles.
///
/// Thread-safety: owned by the port's thread. Lifetime: the port must outlive it.
class channels {
 public:
  explicit channels(net::port& over) : over_(over) {}

  /// `now`: by any monotonic clock. Throws: network_error if the address is invalid, or it cannot be queued.
  void send(const std::string& address, const net::outgoing& message, std::chrono::nanoseconds now) {
    auto& l = to(address);
    if (is_silent(l, now)) (void)renew(address, l);
    over_.send(l.now, message);
    if (std::exchange(l.waits, true)) return;
    l.since = now;
  }
  /// A reply has arrived on a channel of the port, if it is one of these.
  void heard(int channel) noexcept {
    const auto at = by_channel_.find(channel);
    if (at == by_channel_.end()) return;
    auto& l = *at->second;
    l.waits = false;
    l.renewals = 0;
    if (channel == l.now) give_up(l.before);
  }
  /// Now and then renews connections that may have fallen silent, and calls `renewed` with the address of each.
  template <class F>
  void renew_silent(std::chrono::nanoseconds now, const F& renewed) {
    if (now - looked_ < look_interval) return;
    looked_ = now;
    for (auto& [address, l] : by_address_) {
      if (!is_silent(l, now)) continue;
      if (renew(address, l)) renewed(address);
    }
  }
  /// Drops those that lead to none of these servers.
  void follow(const membership& members) {
    std::unordered_set<std::string> stay;
    for (const auto& s : members.servers) {
      if (!takes_part(s.state) && s.state != server_state::left) continue;
      stay.insert(s.shards.begin(), s.shards.end());
      stay.insert({s.clock, s.control});
    }
    for (auto at = by_address_.begin(); at != by_address_.end();) {
      if (stay.contains(at->first)) {
        ++at;
        continue;
      }
      give_up(at->second.now);
      give_up(at->second.before);
      at = by_address_.erase(at);
    }
  }

 private:
  static constexpr unsigned most_doublings = 6;
  static constexpr std::chrono::milliseconds silent = net::late / 2;
  static constexpr std::chrono::milliseconds look_interval{100};
  struct line {
    int now = -1;
    int before = -1;  // the connection that it replaced
    bool waits = false;
    unsigned renewals = 0;             // since something arrived
    std::chrono::nanoseconds since{};  // when what is unanswered was sent over this connection
  };

  line& to(const std::string& address) {
    auto& l = by_address_[address];
    if (l.now < 0) connect(address, l);
    return l;
  }
  void connect(const std::string& address, line& l) {
    const int fresh = over_.connect(address);
    by_channel_.emplace(fresh, &l);
    l.now = fresh;
  }
  void give_up(int& channel) noexcept {
    if (channel < 0) return;
    by_channel_.erase(channel);
    over_.disconnect(std::exchange(channel, -1));
  }
  [[nodiscard]] static bool is_silent(const line& l, std::chrono::nanoseconds now) noexcept {
    return l.waits && now - l.since >= silent * (1U << std::min(l.renewals, most_doublings));
  }
  /// Returns false when no descriptor is left: the connection stays as it is.
  bool renew(const std::string& address, line& l) {
    int fresh = -1;
    try {
      fresh = over_.connect(address);
    } catch (const network_error&) {
      return false;
    }
    by_channel_.emplace(fresh, &l);
    give_up(l.before);
    l.before = std::exchange(l.now, fresh);
    l.waits = false;
    ++l.renewals;
    return true;
  }

  net::port& over_;
  std::unordered_map<std::string, line> by_address_;
  std::unordered_map<int, line*> by_channel_;
  std::chrono::nanoseconds looked_{};
};

}  // namespace paracel::srv
