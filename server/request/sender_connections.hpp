// SPDX-License-Identifier: BSD-3-Clause
//
// Whether requests come over the same connection as the ones before them. The transport reconnects
// when a connection breaks, and messages in flight are lost; later ones must not be served as if nothing were missing.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/request/byte_budget.hpp"

namespace paracel::srv {

/// The connection of each sender of a stream (net::flag_stream). When there are more senders than the budget allows,
/// the oldest are dropped: their next request is refused, and they start again.
///
/// Thread-safety: none. Cost: one map lookup a request; `sender_bytes` a sender.
class sender_connections {
 public:
  static constexpr std::size_t sender_bytes = 256;

  /// `budget`: of all senders; null: they are not counted. Lifetime: it must outlive this.
  explicit sender_connections(byte_budget* budget = nullptr) noexcept : budget_(budget) {}

  /// Whether nothing that was sent before this request can be missing. A request that begins a stream makes its
  /// connection the only one; what still arrives over an older one is rejected.
  [[nodiscard]] bool accepts(const net::request_header& h, const net::peer& from) {
    if ((h.flags & net::flag_stream) == 0) return true;
    const sender who{h.client, h.rank};
    const auto at = connections_.find(who);
    if ((h.flags & net::flag_first) == 0) return at != connections_.end() && at->second.from == from;
    held_bytes held;
    if (at != connections_.end()) {
      held = std::move(at->second.held);
      erase(at);
    } else if (budget_ != nullptr) {
      while (!held.take(*budget_, sender_bytes)) {
        if (by_age_.empty()) return false;
        erase(connections_.find(by_age_.begin()->second));
      }
    }
    connections_.emplace(who, connection{from, ++begun_, std::move(held)});
    by_age_.emplace(begun_, who);
    return true;
  }

  /// Rejects requests of this sender until it starts again.
  void end(const net::request_header& h) {
    if (const auto at = connections_.find({h.client, h.rank}); at != connections_.end()) erase(at);
  }

  [[nodiscard]] static bool are_of_one(const net::request_header& a, const net::request_header& b) noexcept {
    return (a.flags & b.flags & net::flag_stream) != 0 && a.client == b.client && a.rank == b.rank;
  }
  [[nodiscard]] std::size_t size() const noexcept { return connections_.size(); }

 private:
  struct sender {
    std::uint64_t client;
    std::uint32_t rank;
    friend auto operator<=>(const sender&, const sender&) = default;
  };
  struct connection {
    net::peer from;
    std::uint64_t begun;
    held_bytes held;
  };
  using connections = std::map<sender, connection>;

  void erase(connections::iterator at) {
    by_age_.erase(at->second.begun);
    connections_.erase(at);
  }

  byte_budget* budget_;
  connections connections_;
  std::map<std::uint64_t, sender> by_age_;
  std::uint64_t begun_ = 0;
};

}  // namespace paracel::srv
