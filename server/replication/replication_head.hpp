// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "server/replication/chain_context.hpp"
#include "server/replication/replication_links.hpp"

namespace paracel::srv {

struct replication_entry;

/// The partitions that this thread heads: sends their changes to every replica, and whole partitions to those that lack
/// them; knows what has been acknowledged.
///
/// Thread-safety: as its chain. Lifetime: context and links must outlive it.
class replication_head {
 public:
  replication_head(chain_context& of, replication_links& links);

  /// A new epoch: what is unanswered is forgotten, and the replicas of each partition are asked for their indices.
  void begin_epoch();
  /// Sends what the requests since the last call have changed.
  void flush();
  /// Sends whole partitions to replicas that lack them, only so many at once that other requests are not delayed.
  /// Returns: whether there were any.
  bool sweep();
  /// Partitions restored from a checkpoint have reached every replica without an index: unlike empty ones they get one
  /// now. Replicas asked while they had none are asked again: the head may have been the last to read its part.
  /// Returns: whether any is asked.
  bool find_restored();

  [[nodiscard]] bool awaits(std::uint64_t number) const { return pending_.contains(number); }
  /// A reply to one that it awaits. `lacking`: the partitions whose replicas are out of step, ascending.
  void answered(std::uint64_t number, const std::vector<std::uint16_t>& lacking);
  /// Asks again about everything that is unanswered from there.
  void renew(const chain_hop& to);
  void add_waits(replication_links::oldest_waits& out) const;

  /// The number of the last message that replies wait for.
  [[nodiscard]] std::uint64_t last_sent() const noexcept { return last_sent_; }
  /// All messages below this number have been answered.
  [[nodiscard]] std::uint64_t next_open() const noexcept {
    return pending_.empty() ? links_.last_number() + 1 : pending_.begin()->first;
  }
  [[nodiscard]] bool is_idle() const noexcept { return pending_.empty() && installs_.empty(); }
  /// Every replica is complete.
  [[nodiscard]] bool is_whole() const noexcept { return installs_.empty() && next_open() > last_install_; }
  /// The store need not watch for incomplete replicas any more.
  void end_sync();

 private:
  struct sent {
    std::size_t open = 1;      ///< outstanding replies: its own, and those of messages sent in its place
    std::uint64_t parent = 0;  ///< that waits for this one
    std::size_t bytes = 0;     ///< if it was sent by `sweep`
    std::uint32_t to = 0;      ///< number of the peer
    bool again = false;        ///< it asks about the fate of others: what replicas lack is what those carried
    chain_context::time_point at{};
    std::uint64_t traced_since = 0;  ///< 0: it is not traced
    std::vector<std::uint16_t> probes;
  };
  /// A thread of another server that has replicas of partitions headed here, and its next message.
  struct peer {
    chain_hop at{};
    std::bitset<partition_count> incomplete{};  ///< it is not known to be up to date
    std::vector<std::byte> body{};              ///< empty, or the receiver's thread and entries; capacity is reused
    std::vector<std::uint16_t> probes{};
    bool makes_whole = false;  ///< whole partitions are among them
  };

  [[nodiscard]] std::span<const std::uint32_t> peers_of(std::uint16_t partition) const {
    return groups_[group_of_[context_.place_of(partition)]];
  }
  [[nodiscard]] bool has_replica(std::uint32_t peer_number, std::uint16_t partition) const;
  void append_to(std::uint32_t peer_number, const replication_entry& e);
  void ask_about(std::uint32_t peer_number, std::uint16_t partition);
  void ask_about_unknown(std::uint32_t peer_number, std::uint16_t partition);
  void ask_again(std::uint32_t peer_number);
  void complete(std::uint32_t peer_number, std::uint16_t partition);
  void install(std::uint32_t peer_number, std::uint16_t partition, std::uint64_t parent, std::size_t sweep);
  std::uint64_t dispatch(std::uint32_t peer_number, std::uint64_t parent, std::size_t sweep);
  void dispatch_all(std::uint64_t parent = 0, std::size_t sweep = 0);
  void close_one(std::uint64_t number);

  static constexpr std::size_t most_kept_state_bytes = std::size_t{16} << 20;
  static constexpr std::size_t most_kept_body_bytes = std::size_t{1} << 18;

  chain_context& context_;
  replication_links& links_;
  std::vector<peer> peers_;
  std::vector<std::uint32_t> unsent_;               // numbers of peers that have got a message to send, maybe twice
  std::vector<std::uint32_t> group_of_;             // by place: number of the group of peers that have replicas
  std::vector<std::vector<std::uint32_t>> groups_;  // numbers of peers; group 0: none
  std::bitset<partition_count> incomplete_;         // headed here, and some peer's is
  std::deque<std::pair<std::uint32_t, std::uint16_t>> installs_;  // peer and partition, known to be out of date
  std::uint64_t last_install_ = 0;  // number of the last message with a question or a whole state
  std::size_t sweeping_bytes_ = 0;
  std::uint64_t last_sent_ = 0;
  std::map<std::uint64_t, sent> pending_;
  std::vector<std::byte> state_;  // capacity is reused
};

}  // namespace paracel::srv
