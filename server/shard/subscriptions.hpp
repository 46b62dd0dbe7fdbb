// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/protocol.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"
#include "server/store/key_store.hpp"

namespace paracel::srv {

/// Whether `payload` is `count` items of a key and the version that the push_cache has (i64, 8 bytes; 0: none).
/// Cost: O(count), no allocation.
[[nodiscard]] bool is_subscription(std::span<const std::byte> payload, std::uint32_t count) noexcept;

/// Keys that workers want pushed when the clock ticks. A subscription is a request that is answered later, once:
/// with an item for each of its keys, as soon as the clock is beyond the one of the push_cache.
///
///   ok, a value       the key has changed
///   ok, no value      the push_cache has the current version
///   not_found         it does not exist
///   too_large         it has changed, and is larger than 64 KiB or than the remaining credit: fetch it
///
/// The reply's clock c guarantees that the values contain every update of all workers' first c iterations: a worker's
/// tick of iteration c follows the acknowledgements of its updates, `clock_moved(c)` follows all the ticks, and the
/// values are read after that.
/// Thread-safety: owned by the shard thread.
class subscriptions {
 public:
  /// Total parked size; a push_cache beyond it is refused.
  static constexpr std::size_t most_parked_bytes = std::size_t{256} << 20;

  explicit subscriptions(key_store& keys) noexcept : keys_(keys) {}

  /// Answers `done` now, if the clock is beyond the request's, or later. A client has one subscription: the previous
  /// one is answered without items.
  void subscribe(const net::request_view& request, completion done);
  /// The first `clock` iterations of all workers are complete. A smaller clock than before changes nothing.
  /// Cost: two cache misses a parked key.
  void clock_moved(std::uint32_t clock);
  /// Answers everything that is parked.
  void close(net::status why, std::string_view text);

  /// Parked size. Thread-safety: any thread.
  [[nodiscard]] const byte_budget& budget() const noexcept { return budget_; }
  [[nodiscard]] std::size_t parked() const noexcept { return parked_.size(); }

 private:
  struct subscription {
    net::request_header header;
    std::vector<std::byte> items;
    completion done;
    held_bytes held;
  };
  void answer(const net::request_header& header, std::span<const std::byte> items, completion& done);

  key_store& keys_;
  std::uint32_t clock_ = 0;
  byte_budget budget_{most_parked_bytes};
  std::unordered_map<std::uint64_t, subscription> parked_;  // by client
  std::vector<std::byte> reply_;                            // capacity is reused
};

}  // namespace paracel::srv
