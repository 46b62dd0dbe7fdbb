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

/// State in partitions that have copies on other servers, as its replicator sees it: partitions and their changes are
/// records (partition_records.hpp). A shard is one, and so is the clock.
///
/// Thread-safety: owned by one thread, that of its replicator.
class replicated_store {
 public:
  virtual ~replicated_store() = default;

  /// From now on changes are noted. Called more than once.
  virtual void keep_copies() noexcept = 0;
  /// Other partitions than before may be our own.
  virtual void begin_epoch(std::uint32_t epoch) = 0;
  /// Until the next call these partitions count as changed as soon as somebody is served from them, since their copies
  /// are not known to be whole; null: none. Lifetime: the bits may change, and live until the next call.
  virtual void watch(const std::bitset<partition_count>* incomplete) noexcept = 0;
  [[nodiscard]] virtual bool has_changes() const noexcept = 0;
  /// Calls f(partition, records) for each partition that has changed, in ascending order; nothing has changed then.
  virtual void take_changes(const std::function<void(std::uint16_t, std::span<const std::byte>)>& f) = 0;

  /// Appends the records that make the partition again; none if it is empty.
  virtual void encode_partition(std::uint16_t partition, std::vector<std::byte>& out) = 0;
  /// What the head of the partition has written. Returns: ok, or the status and why it cannot be applied.
  virtual net::status apply_copy(std::uint16_t partition, std::span<const std::byte> records, std::string& why) = 0;
  /// There are no copies of these here any more.
  virtual void drop_partitions(const std::bitset<partition_count>& which) = 0;

  /// How much has been defined that records name; what a copy has been told of.
  struct definitions {
    std::size_t functions = 0;
    std::size_t tables = 0;
    friend bool operator==(const definitions&, const definitions&) = default;
  };
  [[nodiscard]] virtual definitions defined() const noexcept { return {}; }
  using definition_visitor = std::function<void(net::verb, std::string_view key, std::span<const std::byte> payload)>;
  /// Calls f with the requests that define it, for a copy that knows `known`.
  virtual void each_definition(const definitions& known, const definition_visitor& f) const {
    static_cast<void>(known);
    static_cast<void>(f);
  }

  /// What waits here is answered through this sink: all of it, or what has come of one client, which sends it again.
  virtual void refuse_waiting(reply_sink& through, net::status why, std::string_view text) = 0;
  virtual void refuse_client(reply_sink& through, std::uint64_t client, net::status why) = 0;
};

}  // namespace paracel::srv
