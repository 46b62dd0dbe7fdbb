// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "net/protocol.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"
#include "server/replication/chain_context.hpp"

namespace paracel::srv {

/// The connections of a thread to those of other servers: they are made at the first message, checked, and renewed
/// when they break. Their owner asks again about what was unanswered then.
///
/// Thread-safety: owned by the thread of the port. Lifetime: context and port must outlive it.
class replication_links {
 public:
  using time_point = chain_context::time_point;

  replication_links(const chain_context& of, net::port& port) noexcept : context_(of), port_(port) {}

  /// Sends a request, in pieces if it is long, after the definitions that the receiver may lack. Returns: its number.
  /// Throws: error when there is no such server.
  std::uint64_t send(const chain_hop& to, net::verb what, std::span<const std::byte> body);
  /// The number of the last request.
  [[nodiscard]] std::uint64_t last_number() const noexcept { return last_number_; }

  /// What a reply says about its connection.
  enum class arrival : std::uint8_t {
    ignored,  ///< not from the server that was asked, or only for the connection
    reply,    ///< to be handled
    broken,   ///< the connection needs `renew`
  };
  arrival receive(const net::reply_header& reply, int connection, chain_hop& from);

  /// Since when replies are outstanding.
  class oldest_waits {
   public:
    void add(const chain_hop& to, time_point since) {
      const auto [at, fresh] = since_.try_emplace(to, since);
      if (!fresh) at->second = std::min(at->second, since);
    }

   private:
    friend replication_links;
    std::map<chain_hop, time_point> since_;
  };
  /// Whether the connections are to be checked; then not again for a while.
  [[nodiscard]] bool is_check_due() noexcept;
  /// Checks connections over which a reply is late, or nothing has arrived for as long: one that has fallen silent is
  /// found before the next update waits for it. Returns: those that need `renew`.
  [[nodiscard]] std::vector<chain_hop> find_broken(const oldest_waits& waits);
  /// A new connection replaces one that may have lost messages.
  void renew(const chain_hop& to);
  /// Drops connections to processes that no longer exist.
  void drop_dead();

 private:
  struct replica_link {
    net::reliable_channel channel;
    std::uint64_t incarnation;             ///< of the server
    replicated_store::definitions told{};  ///< already known to the other side
    time_point heard{};                    ///< when the last reply arrived
  };

  replica_link& link_to(const chain_hop& to);
  void replay_registrations(replica_link& to);
  std::uint64_t send_on(replica_link& to, net::verb what, std::string_view key, std::span<const std::byte> payload,
                        std::size_t pieces_after = 0);

  const chain_context& context_;
  net::port& port_;
  std::uint64_t last_number_ = 0;
  std::map<chain_hop, replica_link> links_;
  time_point next_check_{};
};

}  // namespace paracel::srv
