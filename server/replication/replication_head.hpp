// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "core/hash.hpp"
#include "server/replication/chain_context.hpp"
#include "server/replication/replication_links.hpp"

namespace paracel::srv {

/// The partitions that this thread heads: sends their changes, and whole partitions to replicas that lack them; knows
/// what has been acknowledged.
///
/// Thread-safety: as its chain. Lifetime: context and links must outlive it.
class replication_head {
 public:
  replication_head(chain_context& of, replication_links& links);

  /// A new epoch: what is unanswered is forgotten, and the rest of each chain is asked for its indices.
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
  /// A connection further down the chain has broken: it is unknown how far this message, which it awaits, has come.
  void ask_after(std::uint64_t number) { ask_again(pending_.at(number).route); }
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
    std::uint32_t route = 0;   ///< its number
    bool again = false;        ///< it asks about the fate of others: what replicas lack is what those carried
    chain_context::time_point at{};
    std::uint64_t traced_since = 0;  ///< 0: it is not traced
    std::vector<std::uint16_t> probes;
  };
  /// Entries for the same route.
  struct bundle {
    std::vector<std::byte> entries;
    std::vector<std::uint16_t> probes;
    bool makes_whole = false;  ///< whole partitions are among them
  };
  using bundles = std::map<std::uint32_t, bundle>;  // by number of the route

  void ask_about(bundle& b, std::uint16_t partition) const;
  void ask_again(std::uint32_t route_number);
  void install(std::uint16_t partition, bundles& into, std::uint64_t parent, std::size_t sweep);
  std::uint64_t dispatch(std::uint32_t route_number, bundle& b, std::uint64_t parent, std::size_t sweep);
  void close_one(std::uint64_t number);

  static constexpr std::size_t most_kept_state_bytes = std::size_t{16} << 20;

  chain_context& context_;
  replication_links& links_;
  std::vector<std::uint32_t> route_of_;      // by place: number of the route, 0 where there is none
  std::vector<chain_route> routes_;          // number 0: nowhere
  std::bitset<partition_count> incomplete_;  // headed here, and the rest of the chain is not known to be up to date
  std::deque<std::uint16_t> installs_;       // the rest is known to be out of date
  std::uint64_t last_install_ = 0;           // number of the last message with a question or a whole state
  std::size_t sweeping_bytes_ = 0;
  std::uint64_t last_sent_ = 0;
  std::map<std::uint64_t, sent> pending_;
  std::vector<std::byte> state_;  // capacity is reused
};

}  // namespace paracel::srv
