// SPDX-License-Identifier: BSD-3-Clause
//
// One shard of a server: the partitions p with p % threads == index, their tables, and the verbs on them. It knows no
// socket and no lock; the thread that calls `handle` owns it.
#pragma once

#include <atomic>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tsl/robin_map.h>

#include <paracel/value.hpp>

#include "core/blob.hpp"
#include "core/hash.hpp"
#include "net/protocol.hpp"
#include "server/completion.hpp"
#include "server/dedup.hpp"
#include "server/element_access.hpp"
#include "server/journal.hpp"
#include "server/key_sets.hpp"
#include "server/key_store.hpp"
#include "server/last_words.hpp"
#include "server/partition_state.hpp"
#include "server/plugin_registry.hpp"
#include "server/rows_service.hpp"
#include "server/scan.hpp"
#include "server/subscriptions.hpp"
#include "server/waiting_room.hpp"

namespace paracel::srv {

struct default_and_delta;

/// What a shard has done and holds. Thread-safety: written by the shard thread, read by any.
struct alignas(64) shard_counters {
  using counter = std::atomic<std::uint64_t>;
  static constexpr std::size_t verbs = net::shard_verbs;

  std::array<counter, verbs> requests{};  ///< by verb; [0]: verbs that a shard does not have
  counter bytes_in{0};
  counter bytes_out{0};
  counter failures{0};      ///< replies and items with another status than ok and not_found
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

/// The user function a shard is in. Whoever finds the same `serial` twice knows that it ran all the time in between.
struct busy_function {
  const std::string* name = nullptr;  ///< null: in none; lives as long as the server
  std::uint64_t serial = 0;
};

/// The actor that owns a server's share of the partitions.
///
/// Thread-safety: owned by the shard thread, except `counters` and `busy`: any thread.
/// Lifetime: registry and ownership outlive it. Replies are sent before `handle` returns.
class shard final : private scan_host {
 public:
  /// `owned` may be null inside, and point elsewhere later: then the ring is not known, and every partition of the right
  /// remainder is taken.
  shard(const shard_settings& settings, plugin_registry& plugins, const std::atomic<const ownership*>& owned);

  /// The requests that `handle` will be given next, in this order: their keys are hashed here, all of them, and the memory
  /// of their entries is asked for, so that the misses of a batch overlap.
  void expect(std::span<const net::request_view> requests) noexcept;
  /// Answers `done` exactly once. `tail` is the value of a single-key request when it travelled in its own frame.
  /// No input and no plug-in makes it throw.
  /// A request that follows one with an unknown key set is answered later (waiting_room).
  void handle(const net::request_view& request, blob tail, completion done) noexcept;
  /// The thread ends: what is held back is answered.
  void closing();

  // ---- the state of a partition of this shard as records (partition_state.hpp); by the shard thread

  /// Appends the records that make the partition again. Equal states give equal bytes.
  /// Throws: std::bad_alloc. Cost: O(what the partition holds); the first after a change that is staged or applied also
  /// O(all of those), so whoever wants many partitions asks for them one after the other.
  void encode_partition(std::uint16_t partition, std::vector<std::byte>& out);
  /// Applies records to the partition, in order. What is malformed as a whole changes nothing; a record that cannot be
  /// applied ends it: those before it have been. Staged updates name their functions by content hash, which must be
  /// registered here already.
  /// Returns: ok, bad_request, unknown_function, plugin_failed (a table's optimizer) or out_of_memory, with the reason.
  /// `unlimited` is for copies, which cannot refuse what their head has answered: --max-memory is not looked at.
  enum class room : std::uint8_t { limited, unlimited };
  net::status apply_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why,
                            room memory = room::limited);
  /// These partitions are empty afterwards, without a record.
  void drop_partitions(const std::bitset<partition_count>& which);
  [[nodiscard]] dedup_window& applied() noexcept { return applied_; }

  // ---- partitions with copies (chain.hpp); by the shard thread

  /// Answers the requests that wait for a key set.
  void refuse_waiting(net::status why, std::string_view text) { waiting_room_.close(why, text); }
  void refuse_waiting(std::uint64_t client, net::status why) { waiting_room_.forget(client, why); }

  /// From now on what requests change is noted, requests are remembered, and walks leave out what is not ours.
  void begin_journal() noexcept {
    journal_.record();
    keys_.set_keeps_copies(true);
  }
  [[nodiscard]] journal& changes() noexcept { return journal_; }
  /// Calls f(partition, records) for each partition that the journal has changes of, in ascending order, and empties it.
  template <class F>
  void take_changes(const F& f) {
    if (journal_.empty()) return;
    order_changes();
    std::vector<std::byte> records;
    for (std::uint16_t p = 0; next_changed(p); ++p) {
      records.clear();
      encode_changes(p, records);
      f(p, std::span<const std::byte>(records));
    }
    journal_.clear();
  }
  /// Versions that are given from now on are above those of every earlier epoch, so that none is given twice by two heads.
  void begin_epoch(std::uint32_t epoch) {
    keys_.raise_versions(std::uint64_t{epoch} << 40U);
    list_again();  // with the partitions that were copies so far
    rows_.begin_epoch();
  }
  [[nodiscard]] const rows_service& tables() const noexcept { return rows_; }

  /// Calls f(name, budget) for each kind of thing that is held here for clients. Thread-safety: any thread.
  template <class F>
  void each_budget(const F& f) const {
    f("key_sets", sets_.budget());
    f("key_set_waits", waiting_room_.budget());
    f("subscriptions", subscriptions_.budget());
    f("applied", applied_.budget());
  }
  /// Folds what is staged below the clock that the clock thread has told last, until `over` says so: it is asked after each
  /// key. Returns: whether there is more. Throws: std::bad_alloc.
  bool fold_due(const std::function<bool()>& over);
  [[nodiscard]] bool has_due() const noexcept {
    return (!due_.empty() && due_.begin()->first < due_clock_) || rows_.has_due(due_clock_);
  }

  [[nodiscard]] const shard_counters& counters() const noexcept { return counters_; }
  [[nodiscard]] busy_function busy() const noexcept;

 private:
  struct outcome {
    net::status result = net::status::ok;
    const entry* value = nullptr;  ///< to be returned
    value_view elements;           ///< to be returned in its place
    std::uint64_t version = 0;
    std::string text;              ///< why not
    void fail(net::status why, std::string says) {
      result = why;
      text = std::move(says);
    }
    [[nodiscard]] bool has_value() const noexcept { return value != nullptr || elements.tag != value_tag::none; }
    [[nodiscard]] value_view view() const noexcept { return value != nullptr ? value->view() : elements; }
  };
  /// What all keys of a request have in common.
  struct context {
    const net::request_header* header;
    net::verb what;                         ///< of one key
    const loaded_update* function = nullptr;
    std::uint64_t expected = 0;             ///< of cas: the version, or 0

    [[nodiscard]] bool takes_function() const noexcept {
      using enum net::verb;
      return what == update || what == bupdate || what == update_default || what == update_at;
    }
    /// Only a read may be cut short by the credit: an update has happened, and its result is due.
    [[nodiscard]] bool is_cut_by_credit() const noexcept { return what == net::verb::pull || what == net::verb::pull_at; }
  };
  struct staged_update {
    std::uint32_t clock;
    std::uint32_t rank;
    std::uint64_t arrival;
    net::verb what;                         ///< update, update_default or update_at
    std::uint16_t flags;
    const loaded_update* function;
    value_tag tag;
    blob delta;                             ///< of update_default: its payload
  };
  /// The updates of one key that wait for the clock.
  struct staged_key {
    std::vector<staged_update> waiting;
    net::status broken = net::status::ok;  ///< an update, acknowledged when it was staged, could not be folded
    std::string why;
    std::uint32_t listed = net::no_clock;  ///< in due_, under this clock or (too) under an earlier one
    bool changes_type = false;             ///< one of those that wait may make a value of another type or size
  };
  struct key_hasher {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const noexcept { return hash_key(key); }
  };
  struct key_equal {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept { return a == b; }
  };

  /// A key as it may stand in an error text: what cannot be printed is escaped, what is long is cut.
  static std::string quoted(std::string_view key);
  /// The hash of a request's key, computed already when the request was expected.
  std::uint64_t hash_of(std::string_view key) noexcept;
  void dispatch(const net::request_view& request, blob tail, completion& done);
  void handle_single(const net::request_view& request, blob tail, completion& done);
  bool update_after_answer(const context& c, std::string_view key, std::uint64_t hash, const value_view& delta,
                           completion& done);
  void handle_multi(const net::request_view& request, completion& done);
  template <class Next>
  void answer_items(const context& c, Next&& next, completion& done);
  void handle_set(const net::request_view& request, completion& done);
  void prepare_set(const net::request_view& request, const digest128& digest, completion& done);
  void make_room_for_value(std::size_t left, const net::request_item& item, std::uint64_t hash);
  [[nodiscard]] std::size_t room_of(const context& c) const noexcept;
  bool run_set(const context& c, prepared_set& set, const set_values& values, completion& done);
  void handle_in_order(const net::request_view& request, blob&& tail, completion& done) noexcept;
  void guarded_dispatch(const net::request_view& request, blob&& tail, completion& done) noexcept;
  void handle_register(const net::request_view& request, completion& done);
  void handle_clear(completion& done);
  void handle_rows(const net::request_view& request, blob tail, completion& done);
  void handle_walk(const net::request_view& request, completion& done);

  const loaded_update* function_of(const net::request_header& header, outcome& out);
  static void take_exception(outcome& out) noexcept;
  void expect_answer(std::uint64_t hash);
  void perform(const context& c, std::string_view key, std::uint64_t hash, const value_view& value, blob&& tail,
               outcome& out);
  bool acceptable(std::string_view key, const value_view& value, outcome& out) const;
  void push(std::string_view key, std::uint64_t hash, const value_view& value, blob&& tail, outcome& out);
  void update(const loaded_update& f, std::string_view key, std::uint64_t hash, const value_view& delta, blob&& tail,
              outcome& out);
  void update_default(const loaded_update& f, std::string_view key, std::uint64_t hash, const default_and_delta& both,
                      outcome& out);
  void pull_at(const context& c, std::string_view key, std::uint64_t hash, const value_view& elements, outcome& out);
  void update_at(const context& c, std::string_view key, std::uint64_t hash, const value_view& elements, blob&& tail,
                 outcome& out);
  void update_at(const loaded_update& f, std::string_view key, std::uint64_t hash, const element_change& change,
                 outcome& out);
  bool fits(const loaded_update& f, std::string_view key, outcome& out) const;
  void stage(const context& c, std::string_view key, std::uint64_t hash, const value_view& delta, blob&& tail,
             outcome& out);
  void fold_before(std::uint32_t clock, std::string_view key, std::uint64_t hash, outcome& out);
  void mend(staged_key& staged) noexcept;
  void fold(staged_update& u, std::string_view key, std::uint64_t hash, outcome& folded) noexcept;
  void fold_before(std::uint32_t clock, staged_key& staged, std::string_view key, std::uint64_t hash);
  bool fold_all_before(std::uint32_t clock, time_point until) override;
  bool fold_keys_before(std::uint32_t clock, const std::function<bool()>& over);
  /// Whether a key that is there, or is not, may become a value of another type or size.
  static bool may_change_type(net::verb what, const loaded_update& f) noexcept {
    return what == net::verb::update_default || (f.optimizer == nullptr && f.function->apply != nullptr);
  }
  bool fold_listed(std::uint32_t clock, const std::string& key);
  void list(staged_key& staged, std::string_view key, std::uint32_t clock);
  void list_anew(staged_key& staged, std::string_view key);
  void list_again();
  bool can_be_folded(const context& c, std::string_view key, std::uint64_t hash, const value_view& delta,
                     const staged_key* waiting, outcome& out);
  void handle_fold(const net::request_view& request, completion& done);
  net::status failed_fold(std::string& why) const;
  void fence(const net::request_view& request, completion& done);
  net::status broken(std::string_view prefix, std::string& why) const override;
  void erasing(std::string_view key, std::uint64_t hash) override;
  void forget_staged(std::string_view key);
  void runs(const std::string* function) noexcept override;

  bool was_answered(const net::request_header& h, std::string_view key, std::uint64_t hash, completion& done);
  bool was_applied(const context& c, std::string_view key, std::uint64_t hash, outcome& out);
  void note(const context& c, std::string_view key, std::uint64_t hash, bool staged);
  void note_answer(std::uint16_t partition, const outcome& out);
  void note_answers(const context& c, const prepared_set& set, std::span<const std::byte> answers);
  void clear_owned(completion& done);
  void order_changes();
  bool next_changed(std::uint16_t& partition);
  void encode_changes(std::uint16_t partition, std::vector<std::byte>& out);
  std::size_t encode_key_changes(std::size_t first, std::vector<std::byte>& out);
  void clear_partition(std::uint16_t partition);
  void encode_staged(std::string_view key, const staged_key& staged, std::vector<std::byte>& out);
  static void encode_staged(std::string_view key, const staged_update& u, std::vector<std::byte>& out);
  static void encode_broken(std::string_view key, const staged_key& staged, std::vector<std::byte>& out);
  static void append_applied(std::vector<std::byte>& out, std::uint64_t client, std::uint64_t low, std::uint64_t sequence,
                             const dedup_window::answer& what);
  void encode_key(const entry& e, std::uint64_t hash, std::vector<std::byte>& out);
  void apply_record(std::uint16_t partition, const record& r, outcome& out);
  void apply_put(std::string_view key, std::uint64_t hash, const record& r, outcome& out);
  void apply_stage(std::uint16_t partition, std::string_view key, const record& r, outcome& out);
  void apply_applied(std::uint16_t partition, const record& r, outcome& out);
  void make_staged_index();

  void refuse(completion& done, net::status why, std::string_view text);
  void refuse(completion& done, const outcome& out) { refuse(done, out.result, out.text); }
  void publish() noexcept;

  // What a buffer may keep between requests; one large multi reply should not stay for the rest of the job.
  static constexpr std::size_t kept_buffer_bytes = std::size_t{1} << 20;

  class busy_mark {
   public:
    busy_mark(shard& s, const std::string& name, std::uint64_t function = 0, std::string_view key = {}) noexcept
        : shard_(s), call_({&name, function, key}) {
      s.runs(&name);
    }
    busy_mark(shard& s, const loaded_update& f, std::string_view key) noexcept : busy_mark(s, f.name, f.id, key) {}
    busy_mark(const busy_mark&) = delete;
    busy_mark& operator=(const busy_mark&) = delete;
    ~busy_mark() { shard_.runs(nullptr); }

   private:
    shard& shard_;
    const in_user_call call_;
  };

  const shard_settings settings_;
  plugin_registry& plugins_;
  dedup_window applied_;
  journal journal_{applied_};
  key_store keys_;
  rows_service rows_;
  scan_service scans_;
  key_sets sets_;
  subscriptions subscriptions_{keys_};
  waiting_room waiting_room_;
  static constexpr std::size_t most_fenced = std::size_t{1} << 16;
  std::map<std::uint32_t, std::uint32_t> left_;  // ranks that have left, and what they had finished
  std::set<std::uint64_t> fenced_;  // clients of workers in whose place another process is

  const loaded_update* default_update_ = nullptr;
  const loaded_update* last_update_ = nullptr;  // of the request before: most workers use one function

  tsl::robin_map<std::string, staged_key, key_hasher, key_equal> staged_;
  std::uint64_t staged_count_ = 0;
  std::uint64_t broken_count_ = 0;  // keys whose staged update could not be folded
  std::uint64_t arrivals_ = 0;
  std::uint32_t folded_clock_ = 0;  // the greatest clock of a BSP read: everything before it is complete
  std::uint32_t due_clock_ = 0;     // what the clock thread has told: as far as this all is to be folded
  // Own keys that have something staged, by the least clock of it; a key that was folded since is there no more, or again.
  std::map<std::uint32_t, std::deque<std::string>> due_;

  /// What an update that waits for the clock takes besides its delta, about.
  static constexpr std::ptrdiff_t staged_bytes(std::size_t delta) noexcept {
    return static_cast<std::ptrdiff_t>(delta + 96);
  }
  // The keys of staged_ by partition and name, while it stands as it was at staged_indexed_.
  std::vector<std::pair<std::uint16_t, std::string_view>> staged_index_;
  std::uint64_t staged_changes_ = 1;  // keys that came or went
  std::uint64_t staged_indexed_ = 0;
  struct cursors {
    std::size_t key = 0;
    std::size_t row = 0;
    std::size_t batch = 0;
    std::size_t cleared = 0;
    std::size_t applied = 0;
    std::size_t touched = 0;
  };
  cursors at_;  // of take_changes

  struct expected_keys {
    static constexpr std::size_t most = 32;
    std::array<std::string_view, most> key;
    std::array<std::uint64_t, most> hash;
    std::size_t count = 0;
    std::size_t next = 0;
  };
  expected_keys expected_;  // of the batch in hand

  std::vector<std::byte> computed_;  // results of general updates; capacity is used again
  std::vector<std::byte> items_;     // the body of a multi reply; likewise

  std::atomic<const std::string*> busy_name_{nullptr};
  std::atomic<std::uint64_t> busy_serial_{0};
  shard_counters counters_;
};

}  // namespace paracel::srv
