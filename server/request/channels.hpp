// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/membership.hpp"
#include "net/transport.hpp"

namespace paracel::srv {

/// The channels of a port to threads of servers, by address. A channel is a socket that reconnects forever, so those
/// to servers that were replaced, or have left, are dropped with the membership.
///
/// Thread-safety: owned by the port's thread. Lifetime: the port must outlive it.
class channels {
 public:
  explicit channels(net::port& over) : over_(over) {}

  /// Throws: network_error if the address is invalid.
  int to(const std::string& address) {
    const auto [at, fresh] = by_address_.try_emplace(address, -1);
    if (fresh) {
      try {
        at->second = over_.connect(address);
      } catch (...) {
        by_address_.erase(at);
        throw;
      }
    }
    return at->second;
  }
  /// Drops those that lead to none of these servers.
  void follow(const membership& members) {
    std::unordered_set<std::string> stay;
    for (const auto& s : members.servers) {
      if (!takes_part(s.state) && s.state != server_state::left) continue;
      stay.insert(s.shards.begin(), s.shards.end());
      stay.insert({s.clock, s.control});
    }
    std::erase_if(by_address_, [&](const auto& c) {
      if (stay.contains(c.first)) return false;
      over_.disconnect(c.second);
      return true;
    });
  }

 private:
  net::port& over_;
  std::unordered_map<std::string, int> by_address_;
};

}  // namespace paracel::srv
