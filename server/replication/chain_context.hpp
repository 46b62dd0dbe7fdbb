// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of a replication chain (replication_chain.hpp) share: the membership, options, and the indices.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/membership.hpp"
#include "core/trace.hpp"
#include "net/clock_source.hpp"
#include "net/reliable_channel.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/verb_rules.hpp"
#include "server/store/key_store.hpp"
#include "server/store/replicated_store.hpp"

namespace paracel::srv {

/// The servers that may send each other requests.
[[nodiscard]] std::vector<server_identity> identities_in(const membership& members);

/// A membership shared by the threads of a server.
struct replica_view {
  membership members;
  key_router router;
  ownership owned;
  explicit replica_view(membership m, std::uint32_t slot);
  /// Index of this slot in members.servers.
  std::uint32_t self = 0;
};

struct replication_chain_options {
  std::uint64_t job = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t slot = 0;
  /// Which thread of its server this is, and its partitions: those p with p % threads == index. The clock's
  /// thread has one, the reserved clock_partition.
  place at = place::shard;
  std::uint32_t index = 0;
  std::uint32_t threads = 1;
  /// Limit on whole partitions in flight. A reply waits for all of them.
  std::size_t sweep_bytes = std::size_t{1} << 20;
  /// Target size of a message; a single entry may be larger.
  std::size_t message_bytes = std::size_t{4} << 20;
  std::size_t most_body_bytes = std::size_t{1} << 29;  ///< longer bodies are sent in pieces
  std::chrono::milliseconds resend_after = net::late;  ///< if a reply is later, the connection is checked
  std::function<void(const std::string&)> log{};       ///< a line of text, on the chain's thread; may be empty
};

/// A thread of a server: one of its shards, or the clock.
struct chain_hop {
  static constexpr std::uint32_t clock_thread = 0xffffffff;
  std::uint32_t slot;
  std::uint32_t thread;
  friend auto operator<=>(const chain_hop&, const chain_hop&) = default;
};
/// Lifetime: store and budgets must outlive it.
struct chain_context {
  using time_point = net::clock_source::time_point;

  chain_context(const replication_chain_options& o, server_budgets& b, replicated_store& of);

  const replication_chain_options options;
  server_budgets& budgets;
  replicated_store& store;
  std::shared_ptr<const replica_view> view{};  ///< null: no membership with replicas is known yet
  std::uint32_t epoch = 0;
  time_point now{};                  ///< at the last batch
  bool traced = false;               ///< requests of this batch are: what is sent because of them is traced, too
  std::vector<std::uint64_t> index;  ///< of our replicas, by place

  /// Of which thread the number of a message is; `sender`: its index.
  [[nodiscard]] std::uint32_t trace_thread(std::uint32_t sender) const noexcept {
    return options.at == place::clock ? chain_hop::clock_thread : sender;
  }
  /// trace::now if a message sent now is traced, otherwise 0.
  [[nodiscard]] std::uint64_t traced_since() const noexcept {
    return traced && trace::mine != nullptr ? trace::now() : 0;
  }
  /// Message `number` of this thread, sent to that server at `since`, is answered.
  void trace_message(std::uint64_t since, std::uint64_t number, const chain_hop& to) const noexcept {
    trace::add({.begin = since,
                .end = trace::now(),
                .client = options.incarnation,
                .sequence = number,
                .more = trace_thread(options.index),
                .slot = static_cast<std::uint16_t>(to.slot),
                .kind = trace::kind::replicate,
                .what = static_cast<std::uint8_t>(net::verb::replicate)});
  }
  /// The place of a partition among those of this thread.
  [[nodiscard]] std::size_t place_of(std::uint16_t partition) const noexcept { return partition / options.threads; }
  [[nodiscard]] bool is_own(std::uint16_t partition) const noexcept {
    return partition < partition_count && partition % options.threads == options.index;
  }
  /// Calls f for each partition of this thread.
  template <class F>
  void each_partition(const F& f) const {
    for (std::uint32_t p = options.index; p < partition_count; p += options.threads) f(static_cast<std::uint16_t>(p));
  }
  [[nodiscard]] chain_hop self() const noexcept {
    return {options.slot, options.at == place::clock ? chain_hop::clock_thread : options.index};
  }
  /// The thread of that server that has our partition, or would have it.
  [[nodiscard]] chain_hop hop_to(const server_entry& s, std::uint16_t partition) const noexcept {
    return {s.slot, options.at == place::clock ? chain_hop::clock_thread : shard_of(partition, s.threads)};
  }
};

}  // namespace paracel::srv
