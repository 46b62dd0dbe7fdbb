// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/detail/value.hpp>

#include "core/check.hpp"
#include "core/hash.hpp"
#include "core/shared_buffer.hpp"
#include "core/short_bytes.hpp"
#include "server/store/arena.hpp"
#include "server/store/partition_table.hpp"

namespace paracel::srv {

/// A server of a membership.
struct server_identity {
  std::uint32_t slot = 0;
  std::uint64_t incarnation = 0;
  friend bool operator==(const server_identity&, const server_identity&) = default;
};

/// The partitions that the ring assigns to this server in one epoch, and the servers.
struct ownership {
  std::uint32_t epoch = 0;
  std::vector<server_identity> servers;  ///< the members, and those that have left but still answer
  [[nodiscard]] bool knows(const server_identity& s) const noexcept {
    return std::find(servers.begin(), servers.end(), s) != servers.end();
  }
  std::bitset<partition_count> mine;
  std::bitset<partition_count> replicas;  ///< of which we have a replica, own ones included
};

struct shard_settings {
  std::uint32_t slot = 0;
  std::uint32_t index = 0;
  std::uint32_t threads = 1;
  std::uint64_t job = 0;  ///< requests of another job are rejected; 0: any is accepted
  std::size_t max_value_bytes = std::size_t{256} << 20;
  std::size_t max_message_bytes = std::size_t{1} << 30;                    ///< largest reply frame
  std::size_t max_memory_bytes = std::numeric_limits<std::size_t>::max();  ///< of this shard
  std::size_t max_set_bytes = std::size_t{256} << 20;                      ///< of key sets; as much for row lists
  bool times = false;                                                      ///< requests are timed
};

/// A write would have grown the shard beyond its share of --max-memory. Nothing has changed.
class memory_limit_reached : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "the server has reached its --max-memory; remove keys to make room";
  }
};

/// The partitions of each thread of a server: p % threads, without a division.
class thread_share {
 public:
  explicit constexpr thread_share(std::uint32_t threads) noexcept
      : threads_(threads), reciprocal_((std::uint64_t{1} << 32U) / threads + 1) {}
  /// p / threads. Exact: the reciprocal is too large by less than 2^-32, which times p is less than 1 / threads.
  [[nodiscard]] constexpr std::uint32_t index_of(std::uint16_t p) const noexcept {
    return static_cast<std::uint32_t>(p * reciprocal_ >> 32U);
  }
  /// p % threads
  [[nodiscard]] constexpr std::uint32_t thread_of(std::uint16_t p) const noexcept { return p - index_of(p) * threads_; }

 private:
  std::uint32_t threads_;
  std::uint64_t reciprocal_;
};

/// The keys of one shard: the tables of the partitions p with p % threads == index, and their owners. Consecutive
/// tables are a group, whose entries lie in an arena of their own, so that a scan can read a group in address
/// order.
///
/// Thread-safety: owned by the shard thread.
/// Lifetime: ownership must outlive it.
class key_store {
 public:
  key_store(const shard_settings& settings, const std::atomic<const ownership*>& owned)
      : settings_(settings), share_(settings.threads), room_(settings.max_memory_bytes), owned_(owned) {
    const auto count = (partition_count + settings_.threads - 1) / settings_.threads;
    tables_.reserve(count);
    group_tables_ = (count + most_groups - 1) / most_groups;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i % group_tables_ == 0) groups_.emplace_back(chunks_, memory_bytes_);
      tables_.emplace_back(groups_.back(), family_);
    }
  }

  [[nodiscard]] const shard_settings& settings() const noexcept { return settings_; }

  /// Whether a key of this partition belongs here.
  [[nodiscard]] bool owns(std::uint16_t partition) const noexcept {
    if (share_.thread_of(partition) != settings_.index) return false;
    const auto* owned = owned_.load(std::memory_order_acquire);
    return owned == nullptr || owned->mine[partition];
  }
  /// Whether all keys of these hashes do.
  [[nodiscard]] bool owns_all(std::span<const std::uint64_t> hashes) const noexcept {
    const auto* owned = owned_.load(std::memory_order_acquire);
    for (const auto h : hashes) {
      const auto partition = partition_of(h);
      if (share_.thread_of(partition) != settings_.index) return false;
      if (owned != nullptr && !owned->mine[partition]) return false;
    }
    return true;
  }
  /// The same for a table by its number: a scan skips replicas of other servers' partitions.
  [[nodiscard]] bool owns_table(std::size_t i) const noexcept {
    const auto partition = i * settings_.threads + settings_.index;
    return partition < partition_count && owns(static_cast<std::uint16_t>(partition));
  }
  /// Whether there may be replicas here of partitions that belong to other servers.
  [[nodiscard]] bool keeps_replicas() const noexcept { return keeps_replicas_; }
  void set_keeps_replicas(bool yes) noexcept { keeps_replicas_ = yes; }
  /// The ownership that `owns` uses; null: the ring is not known. A different address means a different epoch.
  [[nodiscard]] const ownership* owned() const noexcept { return owned_.load(std::memory_order_acquire); }
  /// The error text for a partition that is not owned.
  [[nodiscard]] std::string not_mine(std::uint16_t partition) const {
    return "partition " + std::to_string(partition) + " is not at s" + std::to_string(settings_.slot) + " thread " +
           std::to_string(settings_.index);
  }

  /// The table of a hash. A foreign partition maps to a table of ours by its index, which does not hold its keys.
  [[nodiscard]] table& table_of(std::uint64_t hash) noexcept { return tables_[share_.index_of(partition_of(hash))]; }
  /// Tables in the order of their partitions: number i is that of partition `i * threads + index`.
  [[nodiscard]] std::vector<table>& tables() noexcept { return tables_; }
  /// Tables per group; the last one may have fewer. Group g begins with table `g * group_tables()`.
  [[nodiscard]] std::size_t group_tables() const noexcept { return group_tables_; }
  [[nodiscard]] std::deque<arena>& groups() noexcept { return groups_; }

  /// Keys that are looked up together: 32 misses are more than a current core keeps in flight (10 to 16), and their
  /// items fit in the first-level cache.
  static constexpr std::size_t batch = 32;

  /// Prefetches the memory of the keys of at most `batch` hashes, each level for all of them before the next: the
  /// tables, their slots, the entries. Accesses right afterwards then wait for the misses of one key, not of every key.
  void prefetch(std::span<const std::uint64_t> hashes) noexcept {
    std::array<entry*, batch> found;
    guess(hashes, found.data());
  }
  /// The entries of at most `batch` keys, as `prefetch` and `find` for each: `key(i)` is the one with hash number i. A
  /// missing one is null.
  template <class Key>
  void find(std::span<const std::uint64_t> hashes, const Key& key, entry** found) noexcept {
    guess(hashes, found);
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      if (found[i] == nullptr) continue;
      const std::string_view wanted = key(i);
      const auto there = found[i]->key();
      if (there.size() != wanted.size() || !equal_short(there.data(), wanted.data(), wanted.size())) [[unlikely]]
        found[i] = find(hashes[i], wanted);
    }
  }

  [[nodiscard]] entry* find(std::uint64_t hash, std::string_view key) noexcept {
    return table_of(hash).find(hash, key);
  }
  /// Throws: memory_limit_reached, when a value of this size would exceed the limit. Never when it replaces one as
  /// large or larger.
  void check_room(std::uint64_t hash, std::string_view key, std::size_t value_bytes) {
    if (has_room(sizeof(entry) + key.size() + value_bytes)) [[likely]]
      return;
    const auto* e = find(hash, key);
    if (e == nullptr || e->value().size() < value_bytes) throw memory_limit_reached();
  }

  /// As table::store. Also throws memory_limit_reached; nothing has changed.
  entry& store(std::uint64_t hash, std::string_view key, const value_view& value) {
    check_room(hash, key, value.bytes.size());
    auto& e = counted(table_of(hash), [&](table& t) -> entry& { return t.store(hash, key, value); });
    drop_state(hash, key);
    return e;
  }
  entry& store(std::uint64_t hash, std::string_view key, value_tag tag, shared_buffer value) {
    check_room(hash, key, value.size());
    auto& e = counted(table_of(hash), [&](table& t) -> entry& { return t.store(hash, key, tag, std::move(value)); });
    drop_state(hash, key);
    return e;
  }
  bool erase(std::uint64_t hash, std::string_view key) noexcept {
    drop_state(hash, key);
    if (!table_of(hash).erase(hash, key)) return false;
    --size_;
    return true;
  }
  void clear() noexcept {
    for (auto& t : tables_) t.clear();
    for (auto& t : states_) t.clear();
    size_ = 0;
  }

  /// Removes the keys of one partition.
  void clear(std::uint16_t partition) noexcept {
    auto& t = tables_[share_.index_of(partition)];
    size_ -= t.size();
    t.clear();
    if (!states_.empty()) states_[share_.index_of(partition)].clear();
  }
  /// The table of a partition of ours.
  [[nodiscard]] const table& table_of_partition(std::uint16_t partition) const noexcept {
    return tables_[share_.index_of(partition)];
  }
  /// Whether a partition belongs to this shard, whatever the ring says.
  [[nodiscard]] bool is_of_shard(std::uint16_t partition) const noexcept {
    return partition < partition_count && share_.thread_of(partition) == settings_.index;
  }

  /// An optimizer's state of a key, in a second family of tables: null when there is none.
  [[nodiscard]] entry* find_state(std::uint64_t hash, std::string_view key) noexcept {
    return states_.empty() ? nullptr : state_table_of(hash).find(hash, key);
  }
  /// Sets it to `bytes` zeros. A store or erase of the key drops it.
  entry& make_state(std::uint64_t hash, std::string_view key, std::size_t bytes) {
    if (states_.empty()) {
      states_.reserve(tables_.size());
      for (std::size_t i = 0; i < tables_.size(); ++i) states_.emplace_back(state_memory_, state_family_);
    }
    if (!has_room(bytes)) throw memory_limit_reached();
    auto zeros = shared_buffer::allocate(bytes);
    std::memset(zeros.mutable_data(), 0, bytes);
    return state_table_of(hash).store(hash, key, value_tag::packed, std::move(zeros));
  }
  [[nodiscard]] bool keeps_states() const noexcept { return !states_.empty(); }
  [[nodiscard]] std::span<std::byte> open_state(std::uint64_t hash, entry& state) {
    return state_table_of(hash).open(state);
  }
  void drop_state(std::uint64_t hash, std::string_view key) noexcept {
    if (!states_.empty()) state_table_of(hash).erase(hash, key);
  }

  /// Memory that entries no longer use: an upper bound.
  [[nodiscard]] std::size_t unused_bytes() const noexcept;
  /// Gives it back to the system, in steps of one partition, until `over()`; moves entries together where necessary.
  /// Returns: whether there is more to be done. Cost: of a step, as that of a scan of the partition.
  bool tidy(const std::function<bool()>& over) noexcept;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_bytes_; }
  /// False when `bytes` more would exceed the limit.
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept {
    return memory_bytes_ + other_bytes_ + bytes <= room_;
  }
  /// Whether the limit of the settings is enforced; initially it is.
  void limit_memory(bool on) noexcept {
    room_ = on ? settings_.max_memory_bytes : std::numeric_limits<std::size_t>::max();
  }
  /// What the shard holds besides its keys (rows of typed tables) counts towards the same limit.
  void set_other_bytes(std::size_t bytes) noexcept { other_bytes_ = bytes; }
  /// Counts memory that is held for keys elsewhere.
  void count_bytes(std::ptrdiff_t bytes) noexcept { memory_bytes_ += static_cast<std::size_t>(bytes); }
  [[nodiscard]] const table_stats& family() const noexcept { return family_; }
  /// New versions for `n` changes in place (`table::set_version`). Returns: the first.
  std::uint64_t take_versions(std::size_t n) noexcept {
    return std::exchange(family_.last_version, family_.last_version + n) + 1;
  }
  /// Later versions are above this one.
  void raise_versions(std::uint64_t version) noexcept {
    family_.last_version = std::max(family_.last_version, version);
  }

 private:
  // For a million keys, 256 groups are 190 KB each, 50 us of a scan; the half chunk that each leaves unused costs 2
  // bytes a key.
  static constexpr std::uint32_t most_groups = 256;

  void guess(std::span<const std::uint64_t> hashes, entry** found) noexcept {
    PARACEL_ASSERT(hashes.size() <= batch);
    std::array<const table*, batch> of;
    const auto n = hashes.size();
    for (std::size_t i = 0; i < n; ++i) {
      of[i] = &table_of(hashes[i]);
      __builtin_prefetch(of[i]);
    }
    for (std::size_t i = 0; i < n; ++i) of[i]->prefetch_slot(hashes[i]);
    for (std::size_t i = 0; i < n; ++i) {
      found[i] = of[i]->guess(hashes[i]);
      __builtin_prefetch(found[i]);
    }
  }
  bool tidy_tables(arena& memory, std::span<table> of_arena, const std::function<bool()>& over);
  [[nodiscard]] table& state_table_of(std::uint64_t hash) noexcept {
    return states_[share_.index_of(partition_of(hash))];
  }
  template <class F>
  entry& counted(table& t, const F& change) {
    const auto before = t.size();
    auto& e = change(t);
    size_ += t.size() - before;
    return e;
  }

  shard_settings settings_;
  thread_share share_;
  std::size_t room_;  // the current limit
  const std::atomic<const ownership*>& owned_;
  table_stats family_;
  std::size_t memory_bytes_ = 0;
  std::size_t other_bytes_ = 0;
  chunk_pool chunks_;         // before the arenas
  std::deque<arena> groups_;  // before the tables: these free into them
  std::size_t group_tables_ = 1;
  std::vector<table> tables_;  // by partition / threads
  table_stats state_family_;
  arena state_memory_{chunks_, memory_bytes_};  // its own: a scan of the others meets only keys
  std::vector<table> states_;                   // as tables_; none before the first optimizer
  std::uint64_t size_ = 0;
  bool keeps_replicas_ = false;
  std::size_t tidied_ = 0;         // where `tidy` continues: the number of the arena,
  std::size_t tidied_tables_ = 0;  // and of its tables that are done
};

}  // namespace paracel::srv
