// SPDX-License-Identifier: BSD-3-Clause
//
// Whether requests come over the connection over which the ones before them came. The transport makes a connection anew
// when it breaks, and what was on its way is lost; what comes behind it must not be served as if it were not.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::srv {

/// The connection of each sender of a stream (net::flag_stream).
///
/// Thread-safety: none. Cost: one lookup in a map of the senders a request; about 100 bytes a sender.
class streams {
 public:
  /// Whether nothing that was sent before this request can be missing. A request that begins a stream makes its connection
  /// the only one; what still comes over an older one is not taken any more.
  [[nodiscard]] bool takes(const net::request_header& h, const net::peer& from) {
    if ((h.flags & net::flag_stream) == 0) return true;
    const sender who{h.client, h.rank};
    if ((h.flags & net::flag_first) != 0) {
      connections_[who] = from;
      return true;
    }
    const auto at = connections_.find(who);
    return at != connections_.end() && at->second == from;
  }

  /// What its sender sent is not taken any more, until it begins anew.
  void end(const net::request_header& h) { connections_.erase({h.client, h.rank}); }

  [[nodiscard]] static bool are_of_one(const net::request_header& a, const net::request_header& b) noexcept {
    return (a.flags & b.flags & net::flag_stream) != 0 && a.client == b.client && a.rank == b.rank;
  }

 private:
  struct sender {
    std::uint64_t client;
    std::uint32_t rank;
    friend auto operator<=>(const sender&, const sender&) = default;
  };
  std::map<sender, net::peer> connections_;
};

}  // namespace paracel::srv
