// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.hpp"
#include "net/protocol.hpp"
#include "server/request/completion.hpp"

namespace paracel::srv {

/// State in partitions that have replicas on other servers, as its replication_chain sees it: partitions and their
/// changes are records (partition_records.hpp). A shard is one, and so is the clock.
///
/// Thread-safety: owned by one thread, that of its replication_chain.
class replicated_store {
 public:
  virtual ~replicated_store() = default;

  /// From now on changes are noted. May be called repeatedly.
  virtual void keep_replicas() noexcept = 0;
  /// The set of own partitions may have changed.
  virtual void begin_epoch(std::uint32_t epoch) = 0;
  /// Until the next call these partitions count as changed as soon as they are served, since their replicas
  /// are not known to be up to date; null: none. Lifetime: the bits may change, and must live until the next call.
  virtual void watch(const std::bitset<partition_count>* incomplete) noexcept = 0;
  [[nodiscard]] virtual bool has_changes() const noexcept = 0;
  /// Calls f(partition, records) for each changed partition, in ascending order; the changes are then cleared.
  virtual void take_changes(const std::function<void(std::uint16_t, std::span<const std::byte>)>& f) = 0;

  /// Appends the records that reproduce the partition; none if it is empty.
  virtual void encode_partition(std::uint16_t partition, std::vector<std::byte>& out) = 0;
  /// Whether these can be records of the partition, as far as that can be told without applying them; else `why` not.
  /// Cost: O(bytes).
  virtual bool check_replica(std::uint16_t partition, std::span<const std::byte> records, std::string& why) const = 0;
  /// Applies records from the partition's head, which check_replica has accepted. Returns: ok, or the status and why
  /// they cannot be applied.
  virtual net::status apply_replica(std::uint16_t partition, std::span<const std::byte> records, std::string& why) = 0;
  /// Drops the replicas of these partitions.
  virtual void drop_partitions(const std::bitset<partition_count>& which) = 0;

  /// The number of definitions that records refer to: all, or those that a replica has.
  struct definitions {
    std::size_t functions = 0;
    std::size_t tables = 0;
    friend bool operator==(const definitions&, const definitions&) = default;
  };
  [[nodiscard]] virtual definitions defined() const noexcept { return {}; }
  using definition_visitor = std::function<void(net::verb, std::string_view key, std::span<const std::byte> payload)>;
  /// Calls f with the requests that define them, for a replica that already has `known`.
  virtual void each_definition(const definitions& known, const definition_visitor& f) const {
    static_cast<void>(known);
    static_cast<void>(f);
  }

  /// Answers waiting requests through this sink: all of them, or those of one client, which will retry them.
  virtual void refuse_waiting(reply_sink& through, net::status why, std::string_view text) = 0;
  virtual void refuse_client(reply_sink& through, std::uint64_t client, net::status why) = 0;
};

}  // namespace paracel::srv
