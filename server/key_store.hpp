// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/value.hpp>

#include "core/blob.hpp"
#include "core/hash.hpp"
#include "server/arena.hpp"
#include "server/table.hpp"

namespace paracel::srv {

/// The partitions that the ring gives to this server at one epoch.
struct ownership {
  std::uint32_t epoch = 0;
  std::bitset<partition_count> mine;
};

struct shard_settings {
  std::uint32_t slot = 0;
  std::uint32_t index = 0;
  std::uint32_t threads = 1;
  std::uint64_t job = 0;                                   ///< requests of another job are refused; 0: any is taken
  std::size_t max_value_bytes = std::size_t{256} << 20;
  std::size_t max_message_bytes = std::size_t{1} << 30;    ///< largest reply frame
};

/// The keys of one shard: the tables of the partitions p with p % threads == index, and whose they are.
///
/// Thread-safety: owned by the shard thread.
/// Lifetime: ownership outlives it.
class key_store {
 public:
  key_store(const shard_settings& settings, const std::atomic<const ownership*>& owned)
      : settings_(settings), owned_(owned) {
    const auto count = (partition_count + settings_.threads - 1) / settings_.threads;
    tables_.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) tables_.emplace_back(memory_, family_);
  }

  [[nodiscard]] const shard_settings& settings() const noexcept { return settings_; }

  /// Whether a key of this partition belongs here.
  [[nodiscard]] bool owns(std::uint16_t partition) const noexcept {
    if (partition % settings_.threads != settings_.index) return false;
    const auto* owned = owned_.load(std::memory_order_acquire);
    return owned == nullptr || owned->mine[partition];
  }
  /// What `owns` goes by; null: the ring is not known. Another address is another epoch.
  [[nodiscard]] const ownership* owned() const noexcept { return owned_.load(std::memory_order_acquire); }
  /// What to say of a partition that does not.
  [[nodiscard]] std::string not_mine(std::uint16_t partition) const {
    return "partition " + std::to_string(partition) + " is not at s" + std::to_string(settings_.slot) + " thread " +
           std::to_string(settings_.index);
  }

  /// The table of a hash. A stranger's partition has a table of ours under its index, which does not hold its keys.
  [[nodiscard]] table& table_of(std::uint64_t hash) noexcept { return tables_[partition_of(hash) / settings_.threads]; }
  /// Tables in the order of their partitions: number i is that of partition `i * threads + index`.
  [[nodiscard]] std::vector<table>& tables() noexcept { return tables_; }

  /// Has the memory that the keys of these hashes need fetched, each level for all of them before the next: the tables,
  /// their slots, the entries. Whoever uses them right afterwards waits for one key's misses and not for each key's.
  void prefetch(std::span<const std::uint64_t> hashes) noexcept {
    for (const auto h : hashes) __builtin_prefetch(&table_of(h));
    for (const auto h : hashes) table_of(h).prefetch_slot(h);
    for (const auto h : hashes) table_of(h).prefetch_entry(h);
  }

  [[nodiscard]] entry* find(std::uint64_t hash, std::string_view key) noexcept { return table_of(hash).find(hash, key); }
  entry& store(std::uint64_t hash, std::string_view key, const value_view& value) {
    drop_state(hash, key);
    return counted(table_of(hash), [&](table& t) -> entry& { return t.store(hash, key, value); });
  }
  entry& store(std::uint64_t hash, std::string_view key, value_tag tag, blob value) {
    drop_state(hash, key);
    return counted(table_of(hash), [&](table& t) -> entry& { return t.store(hash, key, tag, std::move(value)); });
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

  /// What an optimizer keeps beside the value of a key, in a second family of tables: null when there is nothing.
  [[nodiscard]] entry* find_state(std::uint64_t hash, std::string_view key) noexcept {
    return states_.empty() ? nullptr : state_table_of(hash).find(hash, key);
  }
  /// Sets it to `bytes` zeros. A store or erase of the key drops it.
  entry& make_state(std::uint64_t hash, std::string_view key, std::size_t bytes) {
    if (states_.empty()) {
      states_.reserve(tables_.size());
      for (std::size_t i = 0; i < tables_.size(); ++i) states_.emplace_back(state_memory_, state_family_);
    }
    auto zeros = blob::allocate(bytes);
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

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_.used() + state_memory_.used(); }
  [[nodiscard]] const table_family& family() const noexcept { return family_; }
  /// New versions for `n` changes in place (`table::set_version`). Returns: the first.
  std::uint64_t take_versions(std::size_t n) noexcept {
    return std::exchange(family_.last_version, family_.last_version + n) + 1;
  }

 private:
  [[nodiscard]] table& state_table_of(std::uint64_t hash) noexcept {
    return states_[partition_of(hash) / settings_.threads];
  }
  template <class F>
  entry& counted(table& t, const F& change) {
    const auto before = t.size();
    auto& e = change(t);
    size_ += t.size() - before;
    return e;
  }

  shard_settings settings_;
  const std::atomic<const ownership*>& owned_;
  table_family family_;
  arena memory_;               // before the tables: they give back to it
  std::vector<table> tables_;  // by partition / threads
  table_family state_family_;
  arena state_memory_;         // of its own: what walks the other meets keys only
  std::vector<table> states_;  // as tables_; none before the first optimizer
  std::uint64_t size_ = 0;
};

}  // namespace paracel::srv
