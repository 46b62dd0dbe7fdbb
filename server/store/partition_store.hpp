// SPDX-License-Identifier: BSD-3-Clause
//
// The partitions of one shard as data: keys with their versions and optimizer state, rows of typed
// tables, updates that BSP has staged, and which requests have been applied. Whole partitions, and what a batch of
// requests has changed, are exported and imported as records (partition_records.hpp): for checkpoints and replicas.
//
// It knows only as much of a request as a verb on one key needs, and answers no client: `shard` does.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tsl/robin_map.h>

#include <paracel/detail/value.hpp>

#include "core/hash.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/request/dedup_window.hpp"
#include "server/store/change_log.hpp"
#include "server/store/element_access.hpp"
#include "server/store/function_monitor.hpp"
#include "server/store/key_store.hpp"
#include "server/store/nan_watch.hpp"
#include "server/store/partition_load.hpp"
#include "server/store/partition_records.hpp"
#include "server/store/row_service.hpp"
#include "server/store/scan.hpp"

namespace paracel::srv {

struct default_and_delta;

/// The outcome of a request on one key.
struct key_outcome {
  net::status result = net::status::ok;
  const entry* value = nullptr;  ///< to be returned
  value_view elements;           ///< to be returned instead
  std::uint64_t version = 0;
  std::string text;  ///< why not
  void fail(net::status why, std::string says) {
    result = why;
    text = std::move(says);
  }
  /// Converts the current exception to an outcome. The key is as before; earlier changes to others are still answered.
  void fail_by_exception() noexcept;
  [[nodiscard]] bool has_value() const noexcept { return value != nullptr || elements.tag != value_tag::none; }
  [[nodiscard]] value_view view() const noexcept { return value != nullptr ? value->view() : elements; }
};

/// The operation on a key; what all keys of a request have in common.
struct key_operation {
  const net::request_header* header;
  net::verb what;  ///< of one key
  const loaded_update* function = nullptr;
  std::uint64_t expected = 0;  ///< of cas: the version, or 0

  [[nodiscard]] bool takes_function() const noexcept { return net::takes_function(what); }
  /// Only a read may be cut short by the credit: an update has happened, and its result must be returned.
  [[nodiscard]] bool is_cut_by_credit() const noexcept { return what == net::verb::pull || what == net::verb::pull_at; }
};

/// A key as printed in an error text: unprintable characters are escaped, long keys are truncated.
[[nodiscard]] std::string quoted_key(std::string_view key);

/// Thread-safety: owned by the shard thread.
/// Lifetime: registry, ownership and monitor must outlive it. Values in an outcome are valid until the next change.
class partition_store final : public scan_observer {
 public:
  partition_store(const shard_settings& settings, plugin_registry& plugins, const std::atomic<const ownership*>& owned,
                  function_monitor& monitor);

  [[nodiscard]] key_store& keys() noexcept { return keys_; }
  [[nodiscard]] const key_store& keys() const noexcept { return keys_; }
  [[nodiscard]] row_service& rows() noexcept { return rows_; }
  [[nodiscard]] const row_service& rows() const noexcept { return rows_; }
  /// Verbs on rows are counted here, the caller counts those on keys.
  [[nodiscard]] partition_load& load() noexcept { return load_; }
  [[nodiscard]] const partition_load& load() const noexcept { return load_; }
  /// Looks up the size of a partition, if `load` wants it. Keys count with their mean size.
  void note_size() noexcept {
    const auto partition = load_.unsized();
    if (!partition) return;
    const auto mean = keys_.size() == 0 ? 0 : keys_.memory_bytes() / keys_.size();
    load_.set_bytes(*partition, keys_.table_of_partition(*partition).size() * mean + rows_.bytes_of(*partition));
  }
  /// Which requests have been applied.
  [[nodiscard]] dedup_window& applied() noexcept { return applied_; }
  [[nodiscard]] const dedup_window& applied() const noexcept { return applied_; }
  /// What has changed since the last `take_changes`, once there are replicas. The caller of a verb on a key notes the
  /// key before the call; consequences of the call (staging, folding, clearing) are noted here.
  [[nodiscard]] change_log& changes() noexcept { return log_; }
  [[nodiscard]] const change_log& changes() const noexcept { return log_; }

  // ---- one key. Each sets `out`; no key is changed on failure.

  /// Whether this is acceptable as a value or a delta.
  bool acceptable(std::string_view key, const value_view& value, key_outcome& out) const;
  /// `tail`: the value, if it came in a frame of its own. Earlier failures to fold are cleared.
  void push(std::string_view key, std::uint64_t hash, const value_view& value, shared_buffer&& tail, key_outcome& out);
  void update(const loaded_update& f, std::string_view key, std::uint64_t hash, const value_view& delta,
              shared_buffer&& tail, key_outcome& out);
  void update_default(const loaded_update& f, std::string_view key, std::uint64_t hash, const default_and_delta& both,
                      key_outcome& out);
  void update_at(const loaded_update& f, std::string_view key, std::uint64_t hash, const element_change& change,
                 key_outcome& out);
  void pull_at(std::string_view key, std::uint64_t hash, const element_choice& choice, key_outcome& out);
  void remove(std::string_view key, std::uint64_t hash, key_outcome& out);
  /// Frees buffers that one request has made large.
  void trim() noexcept;

  // ---- what waits for the clock

  /// The delta waits until the clock of its request is complete.
  void stage(const key_operation& op, std::string_view key, std::uint64_t hash, const value_view& delta,
             shared_buffer&& tail, key_outcome& out);
  /// Folds the key's updates of clocks before this one, which is complete.
  void fold_before(std::uint32_t clock, std::string_view key, std::uint64_t hash, key_outcome& out);
  /// The clock thread reports that everything before this clock is complete.
  void clock_moved(std::uint32_t clock) noexcept { due_clock_ = std::max(due_clock_, clock); }
  /// Folds what is staged below the last reported clock, until `over`, called after each key, is true. Returns: whether
  /// there is more. Throws: std::bad_alloc.
  bool fold_due(const std::function<bool()>& over);
  [[nodiscard]] bool has_due() const noexcept {
    return (!due_.empty() && due_.begin()->first < due_clock_) || rows_.has_due(due_clock_);
  }
  /// The greatest clock of a BSP read: everything before it is complete.
  [[nodiscard]] std::uint32_t& folded_clock() noexcept { return folded_clock_; }
  void saw_complete(std::uint32_t clock) noexcept { folded_clock_ = std::max(folded_clock_, clock); }
  /// Whether there is no update of a key that waits or could not be folded.
  [[nodiscard]] bool is_settled() const noexcept { return staged_count_ == 0 && broken_count_ == 0; }
  [[nodiscard]] std::uint64_t staged() const noexcept { return staged_count_ + rows_.staged(); }
  /// Looks for an update of a key or a batch of rows that could not be folded. Returns: its status, and why; or ok.
  net::status failed_fold(std::string& why) const;
  /// Drops what this rank has staged for iterations from `clock` on. Returns: how much; `example` names some of it.
  std::uint64_t fence(std::uint32_t rank, std::uint32_t clock, std::string& example);

  bool fold_all_before(std::uint32_t clock, time_point until) override;
  net::status broken(std::string_view prefix, std::string& why) const override;
  void erasing(std::string_view key, std::uint64_t hash) override;
  void runs(const std::string* function) noexcept override { monitor_.runs(function); }

  // ---- partitions

  /// Clears all of them and the known clocks, but not the applied requests. Returns: how many keys there were.
  std::uint64_t clear() noexcept;
  /// Clears these, in ascending order, and calls f(partition, how many keys there were) after each.
  /// Throws: std::bad_alloc before anything has changed.
  void clear(std::span<const std::uint16_t> partitions, const std::function<void(std::uint16_t, std::uint64_t)>& f);
  /// Appends the records that reproduce the partition. Equal states give equal bytes.
  /// Throws: std::bad_alloc. Cost: O(size of the partition); the first after a staged or applied change also
  /// O(all of those), so a caller that needs many partitions encodes them one right after the other.
  void encode_partition(std::uint16_t partition, std::vector<std::byte>& out);
  /// Applies records to the partition, in order. Input that is malformed as a whole changes nothing; a record that
  /// cannot be applied ends the call, with those before it applied. Staged updates name their functions by content
  /// hash, which must already be registered here. Returns: ok, bad_request, unknown_function, plugin_failed (a table's
  /// optimizer) or out_of_memory, with the reason.
  net::status apply_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why);
  /// The same for a replica and records that check_records has accepted, at any time: they are not checked again. A
  /// replica cannot refuse what its head has answered, so --max-memory is not enforced.
  net::status apply_checked_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why);
  /// Whether all of these can be records of this partition, whatever is stored here; else `why` one cannot. Neither
  /// what they refer to (functions, tables) nor memory is checked.
  bool check_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) const;
  /// Empties these partitions, without logging it.
  void drop_partitions(const std::bitset<partition_count>& which);

  /// What update functions have stored.
  [[nodiscard]] nan_watch& nans() noexcept { return nans_; }
  [[nodiscard]] const nan_watch& nans() const noexcept { return nans_; }

  /// From now on changes are noted, requests are remembered, and scans skip what is not ours.
  void keep_replicas() noexcept {
    log_.record();
    keys_.set_keeps_replicas(true);
  }
  /// Later versions are above those of every earlier epoch: no two heads assign the same one.
  void begin_epoch(std::uint32_t epoch);
  /// Calls f(partition, records) for each changed partition, in ascending order; the changes are then cleared.
  template <class F>
  void take_changes(const F& f) {
    if (log_.empty()) return;
    order_changes();
    std::vector<std::byte> records;
    for (std::uint16_t p = 0; next_changed(p); ++p) {
      records.clear();
      encode_changes(p, records);
      f(p, std::span<const std::byte>(records));
    }
    log_.clear();
  }

 private:
  struct staged_update {
    std::uint32_t clock;
    std::uint32_t rank;
    std::uint64_t arrival;
    net::verb what;  ///< update, update_default or update_at
    std::uint16_t flags;
    const loaded_update* function;
    value_tag tag;
    shared_buffer delta;  ///< of update_default: its payload
  };
  /// The updates of one key that wait for the clock.
  struct staged_key {
    std::vector<staged_update> waiting;
    net::status broken = net::status::ok;  ///< an update, acknowledged when it was staged, could not be folded
    std::string why;
    std::uint32_t listed = net::no_clock;  ///< the clock of its entry in due_; entries under others are stale
    bool changes_type = false;             ///< one of those that wait may change the value's type or size
  };
  struct key_hasher {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const noexcept { return hash_key(key); }
  };
  struct key_equal {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept { return a == b; }
  };

  void put(std::string_view key, std::uint64_t hash, const value_view& value, shared_buffer&& tail, key_outcome& out);
  bool fits(const loaded_update& f, std::string_view key, key_outcome& out) const;

  void clear_error(staged_key& staged) noexcept;
  void fold(staged_update& u, std::string_view key, std::uint64_t hash, key_outcome& folded) noexcept;
  void fold_before(std::uint32_t clock, staged_key& staged, std::string_view key, std::uint64_t hash);
  bool fold_keys_before(std::uint32_t clock, const std::function<bool()>& over);
  /// Whether an existing or missing key may become a value of another type or size.
  static bool may_change_type(net::verb what, const loaded_update& f) noexcept {
    return what == net::verb::update_default || (f.optimizer == nullptr && f.function->apply != nullptr);
  }
  bool fold_listed(std::uint32_t clock, const std::string& key);
  void list(staged_key& staged, std::string_view key, std::uint32_t clock);
  void list_again(staged_key& staged, std::string_view key);
  void list_again();
  bool can_be_folded(const key_operation& op, std::string_view key, std::uint64_t hash, const value_view& delta,
                     const staged_key* waiting, key_outcome& out);
  void forget_staged(std::string_view key);

  void order_changes();
  bool next_changed(std::uint16_t& partition);
  void encode_changes(std::uint16_t partition, std::vector<std::byte>& out);
  std::size_t encode_key_changes(std::size_t first, std::vector<std::byte>& out);
  void clear_partition(std::uint16_t partition);
  void encode_staged(std::string_view key, const staged_key& staged, std::vector<std::byte>& out);
  static void encode_staged(std::string_view key, const staged_update& u, std::vector<std::byte>& out);
  static void encode_broken(std::string_view key, const staged_key& staged, std::vector<std::byte>& out);
  static void append_applied(std::vector<std::byte>& out, std::uint64_t client, std::uint64_t low,
                             std::uint64_t sequence, const dedup_window::answer& what);
  void encode_key(const entry& e, std::uint64_t hash, std::vector<std::byte>& out);
  void check_record(std::uint16_t partition, const record& r, std::uint64_t hash, key_outcome& out) const;
  void check_stage(std::string_view key, const record& r, key_outcome& out) const;
  template <bool is_checked>
  net::status apply_all(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why);
  void apply_record(std::uint16_t partition, const record& r, std::uint64_t hash, key_outcome& out);
  void apply_put(std::string_view key, std::uint64_t hash, const record& r);
  void apply_stage(std::uint16_t partition, std::string_view key, const record& r, key_outcome& out);
  void apply_applied(std::uint16_t partition, const record& r);
  void make_staged_index();

  // The capacity a buffer may keep between requests; one large value should not stay for the rest of the job.
  static constexpr std::size_t kept_buffer_bytes = std::size_t{1} << 20;

  const shard_settings settings_;
  plugin_registry& plugins_;
  function_monitor& monitor_;
  nan_watch nans_;
  dedup_window applied_;
  change_log log_{applied_};
  partition_load load_;
  key_store keys_;
  row_service rows_;

  tsl::robin_map<std::string, staged_key, key_hasher, key_equal> staged_;
  std::uint64_t staged_count_ = 0;
  std::uint64_t broken_count_ = 0;  // keys whose staged update could not be folded
  std::uint64_t arrivals_ = 0;
  std::uint32_t folded_clock_ = 0;  // the greatest clock of a BSP read: everything before it is complete
  std::uint32_t due_clock_ = 0;     // reported by the clock thread: everything before it is to be folded
  // Own keys that have staged updates, by their least clock; a key that was folded since may be missing or stale.
  std::map<std::uint32_t, std::deque<std::string>> due_;

  /// Approximate overhead of a waiting update besides its delta.
  static constexpr std::ptrdiff_t staged_bytes(std::size_t delta) noexcept {
    return static_cast<std::ptrdiff_t>(delta + 96);
  }
  // The keys of staged_ by partition and name, valid while it is unchanged since staged_indexed_.
  std::vector<std::pair<std::uint16_t, std::string_view>> staged_index_;
  std::uint64_t staged_changes_ = 1;  // keys added or removed
  std::uint64_t staged_indexed_ = 0;
  struct cursors {
    std::size_t key = 0;
    std::size_t row = 0;
    std::size_t batch = 0;
    std::size_t cleared = 0;
    std::size_t applied = 0;
    std::size_t touched = 0;
  };
  cursors at_;                       // of take_changes
  std::vector<std::byte> computed_;  // results of general updates; capacity is reused
};

}  // namespace paracel::srv
