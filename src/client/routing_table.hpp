// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "client/kvclt.hpp"
#include "core/membership.hpp"

namespace paracel {

/// The ring and the clients: which server serves each partition, and the client that reaches it.
///
/// A channel is the number of a thread among those of all servers: per server its shards, then clock, then control.
/// Channels and indices of servers are valid in one epoch only.
///
/// Thread-safety: none; owned by the thread of the context, which outlives it.
/// Cost: a lookup is one hash and two loads.
class routing_table {
 public:
  routing_table(client_context& shared, membership members);

  [[nodiscard]] const membership& members() const noexcept { return members_; }
  [[nodiscard]] location locate(std::string_view key) const noexcept { return router_.locate(key); }
  [[nodiscard]] location locate_partition(std::uint16_t p) const noexcept { return router_.locate_partition(p); }

  /// The number of channels.
  [[nodiscard]] std::uint32_t channels() const noexcept { return static_cast<std::uint32_t>(ends_.size()); }
  [[nodiscard]] std::uint32_t channel_of(std::uint32_t server, std::uint32_t thread) const noexcept {
    return first_channel_[server] + thread;
  }
  [[nodiscard]] std::uint32_t channel_of(const location& at) const noexcept { return channel_of(at.server, at.shard); }
  [[nodiscard]] std::uint32_t channel_of(std::uint16_t partition) const noexcept {
    return channel_of(router_.locate_partition(partition));
  }
  /// The channel of every partition, where there is only one shard.
  [[nodiscard]] std::optional<std::uint32_t> only_shard() const noexcept {
    if (servers() != 1 || clients_[0]->shards() != 1) return std::nullopt;
    return channel_of(0, 0);
  }
  /// The channel to the thread that keeps the clock.
  [[nodiscard]] std::uint32_t clock_channel() const noexcept {
    const auto server = router_.clock_server();
    return channel_of(server, clients_[server]->clock_thread());
  }
  /// The channel of a thread of this very process, if it still serves.
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t slot, std::uint64_t incarnation,
                                                  std::uint32_t thread) const noexcept;

  /// The client of one server, by its index in the membership.
  [[nodiscard]] kvclt& client(std::uint32_t server) noexcept { return *clients_[server]; }
  [[nodiscard]] const kvclt& client(std::uint32_t server) const noexcept { return *clients_[server]; }
  [[nodiscard]] std::uint32_t servers() const noexcept { return static_cast<std::uint32_t>(clients_.size()); }
  /// What a channel refers to.
  struct end {
    kvclt* client;
    std::uint32_t thread;
  };
  [[nodiscard]] const end& at(std::uint32_t channel) const noexcept { return ends_[channel]; }
  /// The channel of the thread behind a connection of the port; channels() when there is none.
  [[nodiscard]] std::uint32_t channel_behind(int connection) const noexcept;

  /// f(channel) for each shard of the servers that serve.
  template <class F>
  void for_each_shard(const F& f) const {
    for (std::uint32_t server = 0; server < servers(); ++server) {
      for (std::uint32_t shard = 0; clients_[server]->serves() && shard < clients_[server]->shards(); ++shard)
        f(channel_of(server, shard));
    }
  }

  /// Applies another membership. Clients of processes that remain members keep their connections, the others are
  /// disconnected. Returns: the new members, by index.
  std::vector<std::uint32_t> apply(const membership& fresh);

 private:
  void number_channels();

  client_context& shared_;
  membership members_;
  key_router router_;
  std::vector<std::unique_ptr<kvclt>> clients_;  // by index of the server
  std::vector<std::uint32_t> first_channel_;     // of each server
  std::vector<end> ends_;                        // by channel
};

}  // namespace paracel
