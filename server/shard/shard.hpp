// SPDX-License-Identifier: BSD-3-Clause
//
// One shard of a server: the partitions p with p % threads == index, their tables, and the verbs on them. It has no
// socket and no lock; the thread that calls `handle` owns it. Its data is a partition_store, which the
// replication_chain replicates.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/request/completion.hpp"
#include "server/request/deferred_requests.hpp"
#include "server/request/verb_times.hpp"
#include "server/shard/hot_keys.hpp"
#include "server/shard/subscriptions.hpp"
#include "server/store/function_monitor.hpp"
#include "server/store/key_sets.hpp"
#include "server/store/partition_store.hpp"
#include "server/store/replicated_store.hpp"
#include "server/store/scan.hpp"

namespace paracel::srv {

/// Statistics of a shard. Thread-safety: written by the shard thread, read by any.
struct alignas(64) shard_counters {
  using counter = std::atomic<std::uint64_t>;
  static constexpr std::size_t verbs = net::verb_count;

  std::array<counter, verbs> requests{};  ///< by verb; [0]: unknown verbs
  counter bytes_in{0};
  counter bytes_out{0};
  counter failures{0};  ///< replies and items with a status other than ok and not_found
  counter keys{0};
  counter memory_bytes{0};  ///< entries, tables, large values, rows, staged updates
  counter staged{0};        ///< updates, and batches of rows, that wait for the clock
  counter rows{0};          ///< of typed tables

  /// By the shard thread alone: an increment without a locked instruction.
  static void add(counter& c, std::uint64_t n) noexcept {
    c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  static void set(counter& c, std::uint64_t n) noexcept { c.store(n, std::memory_order_relaxed); }
};

/// The owner of a server's share of the partitions.
///
/// Thread-safety: owned by the shard thread, except `counters` and `busy`: any thread.
/// Lifetime: registry and ownership must outlive it. Replies are sent before `handle` returns.
class shard final : public replicated_store {
 public:
  /// `owned` may hold null, and change later: while null the ring is not known, and every partition of the
  /// right remainder is accepted.
  shard(const shard_settings& settings, plugin_registry& plugins, const std::atomic<const ownership*>& owned);

  /// The requests that `handle` will be given next, in this order: all their keys are hashed here, and the memory of
  /// their entries is prefetched, so that the misses of a batch overlap.
  void expect(std::span<const net::request_view> requests) noexcept;
  /// Answers `done` exactly once. `tail` is the value of a single-key request if it came in its own frame.
  /// No input and no plug-in makes it throw.
  /// A request that follows one with an unknown key set is answered later (deferred_requests).
  void handle(const net::request_view& request, shared_buffer tail, completion done) noexcept;
  /// The thread exits: held requests are answered.
  void closing();

  // ---- the state of a partition of this shard: as in partition_store, and the counters are updated

  void encode_partition(std::uint16_t partition, std::vector<std::byte>& out) override {
    store_.encode_partition(partition, out);
  }
  net::status apply_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why);
  void drop_partitions(const std::bitset<partition_count>& which) override;
  [[nodiscard]] partition_store& store() noexcept { return store_; }
  [[nodiscard]] dedup_window& applied() noexcept { return store_.applied(); }

  // ---- partitions with replicas, for the replication_chain

  void keep_replicas() noexcept override { store_.keep_replicas(); }
  void begin_epoch(std::uint32_t epoch) override { store_.begin_epoch(epoch); }
  void watch(const std::bitset<partition_count>* incomplete) noexcept override { store_.changes().watch(incomplete); }
  [[nodiscard]] bool has_changes() const noexcept override { return !store_.changes().empty(); }
  void take_changes(const std::function<void(std::uint16_t, std::span<const std::byte>)>& f) override {
    store_.take_changes(f);
  }
  bool check_replica(std::uint16_t partition, std::span<const std::byte> records, std::string& why) const override {
    return store_.check_records(partition, records, why);
  }
  net::status apply_replica(std::uint16_t partition, std::span<const std::byte> records, std::string& why) override;
  [[nodiscard]] definitions defined() const noexcept override {
    return {plugins_.registered(), store_.rows().tables()};
  }
  void each_definition(const definitions& known, const definition_visitor& f) const override;
  /// The requests that wait for a key set.
  void refuse_waiting(reply_sink& through, net::status why, std::string_view text) override {
    deferred_.close(why, text, &through);
  }
  void refuse_client(reply_sink& through, std::uint64_t client, net::status why) override {
    deferred_.forget(client, why, &through);
  }

  /// Calls f(name, budget) for each kind of memory held here for clients. Thread-safety: any thread.
  template <class F>
  void each_budget(const F& f) const {
    f("key_sets", sets_.budget());
    f("row_lists", store_.rows().lists_budget());
    f("key_set_waits", deferred_.budget());
    f("subscriptions", subscriptions_.budget());
    f("applied", store_.applied().budget());
  }
  bool fold_due(const std::function<bool()>& over);
  /// Whether removed keys and rows have left enough memory behind for `tidy`.
  [[nodiscard]] bool wants_tidying() const noexcept;
  /// Gives it back to the system until `over()`. Returns: whether there is more to be done.
  bool tidy(const std::function<bool()>& over) noexcept;
  [[nodiscard]] bool has_due() const noexcept { return store_.has_due(); }

  [[nodiscard]] const shard_counters& counters() const noexcept { return counters_; }
  /// Thread-safety: any thread.
  [[nodiscard]] const nan_watch& nans() const noexcept { return store_.nans(); }
  [[nodiscard]] running_function busy() const noexcept { return monitor_.busy(); }
  /// Thread-safety: any thread.
  [[nodiscard]] const hot_keys& hot() const noexcept { return hot_; }
  /// Thread-safety: any thread.
  [[nodiscard]] const partition_load& load() const noexcept { return store_.load(); }
  /// How long requests took, without waiting: null unless shard_settings::times. Thread-safety: any thread.
  [[nodiscard]] const verb_times* times() const noexcept { return times_.get(); }

 private:
  void count_key(const net::request_view& request) noexcept;
  /// The hash of a request's key, precomputed when the request was expected.
  std::uint64_t hash_of(std::string_view key) noexcept;
  void dispatch(const net::request_view& request, shared_buffer tail, completion& done);
  void handle_single(const net::request_view& request, shared_buffer tail, completion& done);
  bool update_after_answer(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& delta,
                           completion& done);
  void handle_multi(const net::request_view& request, completion& done);
  template <class Next>
  void answer_items(const key_operation& c, Next&& next, completion& done);
  void handle_set(const net::request_view& request, completion& done);
  void prepare_set(const net::request_view& request, const digest128& digest, completion& done);
  void announce(const key_operation& c, std::span<const net::request_item> items, std::span<const std::uint64_t> hashes,
                expected_calls& soon);
  void make_room_for_value(std::size_t left, const net::request_item& item, std::uint64_t hash);
  [[nodiscard]] std::size_t room_of(const key_operation& c) const noexcept;
  bool run_set(const key_operation& c, prepared_set& set, const set_values& values, completion& done);
  bool run_multi(const key_operation& c, const net::request_view& request, completion& done);
  [[nodiscard]] bool can_run(const key_operation& c) const;
  [[nodiscard]] bool can_run(const key_operation& c, const resolved_keys& keys) const;
  [[nodiscard]] bool may_answer_first(const key_operation& c) const;
  void run(const key_operation& c, resolved_keys& keys, const std::byte* values);
  void answer_uniform(const key_operation& c, const resolved_keys& keys, completion& done);
  void handle_in_order(const net::request_view& request, shared_buffer&& tail, completion& done) noexcept;
  void guarded_dispatch(const net::request_view& request, shared_buffer&& tail, completion& done) noexcept;
  void handle_register(const net::request_view& request, completion& done);
  void handle_clear(completion& done);
  void handle_rows(const net::request_view& request, shared_buffer tail, completion& done);
  void handle_scan(const net::request_view& request, completion& done);

  const loaded_update* function_of(const net::request_header& header, key_outcome& out);
  void expect_answer(std::uint64_t hash);
  void perform(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& value,
               shared_buffer&& tail, key_outcome& out);
  void pull_at(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& elements,
               key_outcome& out);
  void update_at(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& elements,
                 shared_buffer&& tail, key_outcome& out);
  void handle_fold(const net::request_view& request, completion& done);
  void fence(const net::request_view& request, completion& done);

  bool was_answered(const net::request_header& h, std::string_view key, std::uint64_t hash, completion& done);
  bool was_applied(const key_operation& c, std::string_view key, std::uint64_t hash, key_outcome& out);
  void record_change(const key_operation& c, std::string_view key, std::uint64_t hash, bool staged);
  void note_answer(std::uint16_t partition, const key_outcome& out);
  void note_answers(const key_operation& c, const prepared_set& set, const resolved_keys& keys);
  void clear_owned(completion& done);

  [[nodiscard]] change_log& log() noexcept { return store_.changes(); }
  void refuse(completion& done, net::status why, std::string_view text);
  void refuse(completion& done, const key_outcome& out) { refuse(done, out.result, out.text); }
  void publish() noexcept;

  // The capacity that a buffer may keep between requests; one large multi reply should not stay for the rest of the
  // job.
  static constexpr std::size_t kept_buffer_bytes = std::size_t{1} << 20;

  const shard_settings settings_;
  plugin_registry& plugins_;
  function_monitor monitor_;
  hot_keys hot_;
  const std::unique_ptr<verb_times> times_;
  bool tidied_keys_ = false;  // by the current `tidy`
  partition_store store_;
  scan_service scans_;
  key_sets sets_{settings_.max_set_bytes};
  subscriptions subscriptions_{store_.keys()};
  deferred_requests deferred_;
  static constexpr std::size_t most_fenced = std::size_t{1} << 16;
  std::map<std::uint32_t, std::uint32_t> left_;  // ranks that have left, and what they had finished
  std::set<std::uint64_t> fenced_;               // clients of workers that were replaced

  const loaded_update* default_update_ = nullptr;
  const loaded_update* last_update_ = nullptr;  // of the previous request: most workers use one function

  struct expected_keys {
    static constexpr std::size_t most = 32;
    std::array<std::string_view, most> key;
    std::array<std::uint64_t, most> hash;
    std::size_t count = 0;
    std::size_t next = 0;
  };
  expected_keys expected_;  // of the current batch

  std::vector<std::byte> items_;   // the body of a multi reply; capacity is reused
  std::vector<std::byte> values_;  // of a multi request, contiguously
  resolved_keys resolved_;         // of a multi request
  shard_counters counters_;
};

}  // namespace paracel::srv
