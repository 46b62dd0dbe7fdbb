// SPDX-License-Identifier: BSD-3-Clause
//
// The servers of the job and the placement of keys. The scheduler creates a membership and sends it as JSON text; every
// process computes the same ring from it, so that ring points are never sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.hpp"

namespace paracel {

/// up: it serves. joining: it is receiving replicas and heads nothing yet. down: it is lost, and its slot waits for
/// a replacement. entering: as joining, in a slot that is new to the job. leaving: it serves until others have replicas
/// of its data. left: it no longer serves, but still answers requests to say so. gone: its process has exited, and the
/// slot may be reused.
enum class server_state : std::uint8_t { up, joining, down, entering, leaving, left, gone };
const char* name_of(server_state s) noexcept;
/// Whether it may be the head of a partition.
constexpr bool may_head(server_state s) noexcept { return s == server_state::up || s == server_state::leaving; }
/// Whether it serves or is receiving replicas.
constexpr bool takes_part(server_state s) noexcept {
  return may_head(s) || s == server_state::joining || s == server_state::entering;
}

struct server_entry {
  std::uint32_t slot = 0;         ///< position on the ring; the server is called s<slot>
  double weight = 1;              ///< share of the keys, relative to the other servers
  std::uint64_t incarnation = 0;  ///< changes when another process takes the slot
  std::uint32_t threads = 1;      ///< shard threads
  std::string host;               ///< for display
  int pid = 0;
  server_state state = server_state::up;
  std::vector<std::string> shards;  ///< one address per shard thread
  std::string clock;                ///< address of the clock thread
  std::string control;              ///< address of the control thread

  friend bool operator==(const server_entry&, const server_entry&) = default;
};

/// The folder of the job's checkpoints, and the one that it resumes from.
struct checkpoint_plan {
  std::string folder;         ///< empty: no checkpoints
  std::uint32_t every = 0;    ///< clocks between checkpoints; 0: only on request
  std::string resume;         ///< the folder of one checkpoint; empty: the job starts at clock 0
  std::uint32_t clock = 0;    ///< of that one: iterations that every worker has finished
  std::uint32_t workers = 0;  ///< of that one

  friend bool operator==(const checkpoint_plan&, const checkpoint_plan&) = default;
};

/// A user function that has killed a server: it is blocked on all servers.
struct refused_function {
  std::uint64_t id = 0;  ///< the same on every server
  std::string why;       ///< what it did, and where

  friend bool operator==(const refused_function&, const refused_function&) = default;
};

/// A partition that is at another server than the ring says.
struct placement {
  std::uint16_t partition = 0;
  std::uint32_t slot = 0;  ///< of a server on the ring; otherwise the ring decides

  friend bool operator==(const placement&, const placement&) = default;
};

struct membership {
  std::uint32_t epoch = 1;  ///< increases with every change
  std::uint64_t job = 0;
  std::uint32_t workers = 1;
  std::uint32_t replicas = 1;  ///< replicas of each partition, the first one included
  bool elastic = false;        ///< servers may join and leave, also without replicas
  std::vector<server_entry> servers;
  std::vector<placement> placed;  ///< in the order of partitions, each once
  std::vector<placement> moving;  ///< likewise: these servers are receiving them, and head them in a later epoch
  checkpoint_plan checkpoints;
  std::vector<refused_function> refused;

  /// Whether later memberships are possible.
  [[nodiscard]] bool may_change() const noexcept { return replicas > 1 || elastic; }

  /// Largest text `from_json` accepts: 4,096 servers of 64 threads with addresses of 50 bytes are 14 MB.
  static constexpr std::size_t most_json_bytes = std::size_t{16} << 20;
  static constexpr std::uint32_t most_threads = 1024;
  static constexpr std::uint32_t most_workers = 1U << 20;
  static constexpr std::uint32_t most_replicas = 8;
  static constexpr std::size_t most_refused = 1024;

  /// Ids of 64 bits are strings of 16 hex digits. Omitted: `replicas` when it is 1, `elastic` when false, the
  /// state of servers that are up, placements when there are none, a plan for checkpoints or blocked functions when
  /// there are none.
  [[nodiscard]] std::string to_json() const;
  /// Reads what `to_json` writes; fields it does not know are ignored.
  /// Throws: protocol_error that names the field, for a text that is not JSON, too long or too deep, a field that is
  /// missing, of another type or out of range, a duplicate slot, an unknown state, a number of addresses other
  /// than `threads`.
  [[nodiscard]] static membership from_json(std::string_view text);

  friend bool operator==(const membership&, const membership&) = default;
};

/// The partition whose head also keeps the clock of the job.
inline constexpr std::uint16_t clock_partition = 0;

/// The shard thread of a server that owns `partition`. Adjacent partitions on the ring often share a server, so modulo
/// spreads them over its threads.
constexpr std::uint32_t shard_of(std::uint16_t partition, std::uint32_t threads) noexcept {
  return partition % threads;
}

struct location {
  std::uint16_t partition;
  std::uint32_t server;  ///< index in membership.servers of the partition's head
  std::uint32_t shard;

  friend bool operator==(const location&, const location&) = default;
};

/// Maps a key to the server and the shard thread that own it, and to the servers with replicas of it.
///
/// The order of a partition is the server where it is placed, if it is, its owner on the ring, and then the other
/// servers clockwise, whatever their states: a slot whose server is lost stays on the ring. Its chain is the first
/// `replicas` servers of that order that serve, followed by the joining ones that would be among the first `replicas`
/// if they were up. The first of the chain, the head, serves the partition.
///
/// While servers enter or leave, or partitions move, there are two rings with their placements: the chain follows the
/// one without the entering servers, followed by all members of the chain on the other one, without the leaving
/// servers, with what moves in its new place. Once these have their replicas only the second ring remains, and every
/// member of a chain was already in that partition's chain.
///
/// Thread-safety: const-concurrent.
/// Cost: one hash and one load from a table of 64 KiB; construction costs that of the ring (ten servers: 0.35 ms, with
/// replicas 0.5 ms).
class key_router {
 public:
  /// Throws: error when there is no server or none of them is up, or as `ring::add`.
  explicit key_router(const membership& members);

  [[nodiscard]] location locate(std::string_view key) const noexcept {
    return locate_partition(partition_of(hash_key(key)));
  }
  /// `partition` must be below partition_count.
  [[nodiscard]] location locate_partition(std::uint16_t partition) const noexcept {
    const auto& h = homes_[partition];
    return {partition, h.server, h.shard};
  }
  /// The servers of a partition, by index in membership.servers: head first, never empty.
  [[nodiscard]] std::span<const std::uint16_t> chain(std::uint16_t partition) const noexcept {
    if (chain_begin_.empty()) return {&homes_[partition].server, 1};
    return std::span(chains_).subspan(chain_begin_[partition], chain_begin_[partition + 1U] - chain_begin_[partition]);
  }
  /// Index of the server that keeps the clock.
  [[nodiscard]] std::uint32_t clock_server() const noexcept { return homes_[clock_partition].server; }

 private:
  struct home {
    std::uint16_t server;
    std::uint16_t shard;
  };
  std::vector<home> homes_;  // by partition
  // Partition p has chains_[chain_begin_[p] .. chain_begin_[p + 1]). Both are empty when every partition is on its
  // owner alone.
  std::vector<std::uint32_t> chain_begin_;
  std::vector<std::uint16_t> chains_;
};

}  // namespace paracel
