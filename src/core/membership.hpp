// SPDX-License-Identifier: BSD-3-Clause
//
// Who is in the job and where a key lives. The scheduler makes a membership and sends it as JSON text; everybody
// computes the same ring from it, so that ring points never travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.hpp"

namespace paracel {

struct server_entry {
  std::uint32_t slot = 0;         ///< place on the ring; the server is called s<slot>
  double weight = 1;              ///< share of the keys, relative to the other servers
  std::uint64_t incarnation = 0;  ///< differs when another process takes the slot
  std::uint32_t threads = 1;      ///< shard threads
  std::string host;               ///< for people
  int pid = 0;
  std::vector<std::string> shards;  ///< one address a shard thread
  std::string clock;                ///< address of the clock thread
  std::string control;              ///< address of the control thread

  friend bool operator==(const server_entry&, const server_entry&) = default;
};

struct membership {
  std::uint32_t epoch = 1;  ///< rises with every change
  std::uint64_t job = 0;
  std::uint32_t workers = 1;
  std::vector<server_entry> servers;

  /// Largest text `from_json` looks at: 4,096 servers of 64 threads with addresses of 50 bytes are 14 MB.
  static constexpr std::size_t most_json_bytes = std::size_t{16} << 20;
  static constexpr std::uint32_t most_threads = 1024;
  static constexpr std::uint32_t most_workers = 1U << 20;

  /// Ids of 64 bits are strings of 16 hex digits.
  [[nodiscard]] std::string to_json() const;
  /// Reads what `to_json` writes; fields it does not know are ignored.
  /// Throws: protocol_error that names the field, for a text that is no JSON, too long or too deep, a field that is
  /// missing, of another type or out of range, a slot that occurs twice, a number of addresses other than `threads`.
  [[nodiscard]] static membership from_json(std::string_view text);

  friend bool operator==(const membership&, const membership&) = default;
};

/// The partition whose owner also keeps the clock of the job.
inline constexpr std::uint16_t clock_partition = 0;

/// The shard thread of a server that owns `partition`. Neighbours on the ring often have one server, so modulo spreads
/// them over its threads.
constexpr std::uint32_t shard_of(std::uint16_t partition, std::uint32_t threads) noexcept {
  return partition % threads;
}

struct location {
  std::uint16_t partition;
  std::uint32_t server;  ///< index in membership.servers
  std::uint32_t shard;

  friend bool operator==(const location&, const location&) = default;
};

/// From a key to the server and the shard thread that own it.
///
/// Thread-safety: const-concurrent.
/// Cost: one hash and one load from a table of 64 KiB; making it costs the ring (0.4 ms for ten servers).
class key_router {
 public:
  /// Throws: error when there is no server, or as `ring::add`.
  explicit key_router(const membership& members);

  [[nodiscard]] location locate(std::string_view key) const noexcept {
    return locate_partition(partition_of(hash_key(key)));
  }
  /// `partition` must be below partition_count.
  [[nodiscard]] location locate_partition(std::uint16_t partition) const noexcept {
    const auto& h = homes_[partition];
    return {partition, h.server, h.shard};
  }
  /// Index of the server that keeps the clock.
  [[nodiscard]] std::uint32_t clock_server() const noexcept { return homes_[clock_partition].server; }

 private:
  struct home {
    std::uint16_t server;
    std::uint16_t shard;
  };
  std::vector<home> homes_;  // by partition
};

}  // namespace paracel
