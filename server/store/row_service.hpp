// SPDX-License-Identifier: BSD-3-Clause
//
// The typed tables of a shard and the verbs on their rows; src/net/row_codec.hpp draws the wire format. Tables are
// created by table_open, which is sent to every shard, and are never deleted; clear only empties them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/row_codec.hpp"
#include "net/row_values.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"
#include "server/store/change_log.hpp"
#include "server/store/key_store.hpp"
#include "server/store/nan_watch.hpp"
#include "server/store/partition_load.hpp"
#include "server/store/partition_records.hpp"
#include "server/store/row_lists.hpp"
#include "server/store/row_table.hpp"

namespace paracel::srv {

/// Thread-safety: owned by the shard thread.
/// Lifetime: keys, plug-ins, change log and load must outlive it; of the keys only ownership, settings and the memory
/// limit are used.
class row_service {
 public:
  row_service(const key_store& keys, plugin_registry& plugins, change_log& log, nan_watch& nans, partition_load& load);

  /// The outcome of a request, for the counters.
  struct served {
    std::size_t bytes_out = 0;
    bool failed = false;
  };
  /// Verbs from table_open to rows_scan; answers `done`. `folded_clock` is the shard's: everything before it is
  /// complete. A request that runs out of memory is answered out_of_memory, with the number of rows that were handled.
  /// Throws: std::bad_alloc; no row has changed.
  served handle(const net::request_view& request, shared_buffer tail, completion& done, std::uint32_t& folded_clock);
  /// The list that a request names, if it is unknown here.
  [[nodiscard]] std::optional<digest128> missing_list(const net::request_view& request);
  /// Thread-safety: any thread.
  [[nodiscard]] const byte_budget& lists_budget() const noexcept { return lists_.budget(); }
  /// The function that the request runs, for monitoring long runs; lives as long as the
  /// plug-ins.
  [[nodiscard]] const std::string& doing(const net::request_header& header) const noexcept;

  /// Removes all rows and staged batches. The tables stay open.
  void clear() noexcept;
  /// The same of one partition. Throws: std::bad_alloc before it changes anything; not after split_staged.
  void clear(std::uint16_t partition);
  /// Splits every staged batch by partition. Throws: std::bad_alloc; staged batches are as before.
  void split_staged();

  /// Appends the records that reproduce the rows of a partition, in an order that depends on the state alone.
  /// Cost: O(rows of the partition), and once after a batch was staged O(rows of all batches).
  void encode(std::uint16_t partition, std::vector<std::byte>& out);
  /// Whether this can be a record on a table or its rows. Returns: ok, or bad_request and why not.
  net::status check(std::uint16_t partition, const record& r, std::string& why) const;
  /// Applies a record on a table or its rows. Returns: ok, or the status and why nothing has changed.
  net::status apply(std::uint16_t partition, const record& r, std::string& why);

  /// Appends the current state of the rows and batches that were noted in this partition.
  void encode_changes(std::uint16_t partition, std::span<const change_log::row_change> rows,
                      std::span<const change_log::batch_change> batches, std::vector<std::byte>& out);
  /// Calls f(name, definition) for each table that is open.
  template <class F>
  void each_table(const F& f) const {
    for (const auto& [id, t] : tables_) f(std::string_view(t->name), std::span<const std::byte>(t->definition));
  }
  /// Whether rows have been erased since their table was last tidied.
  [[nodiscard]] bool wants_tidying() const noexcept;
  /// row_table::tidy of all of them.
  bool tidy(const std::function<bool()>& over) noexcept;
  [[nodiscard]] std::size_t tables() const noexcept { return tables_.size(); }

  /// Memory of tables, rows and staged batches.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  /// Of the rows of a partition. Cost: a look at each table.
  [[nodiscard]] std::size_t bytes_of(std::uint16_t partition) const noexcept;
  /// Batches that wait for the clock.
  [[nodiscard]] std::uint64_t staged() const noexcept { return staged_count_; }
  /// Folds batches of clocks before this one until `over`, called after each, is true. Returns: whether none is left.
  bool fold_before(std::uint32_t clock, const std::function<bool()>& over);
  [[nodiscard]] bool has_due(std::uint32_t clock) const noexcept { return staged_count_ != 0 && clock > folded_to_; }
  /// The set of own partitions has changed.
  void begin_epoch() noexcept { folded_to_ = 0; }
  /// Looks for a batch that could not be folded. Returns: its status, and why; or ok.
  net::status failed_fold(std::string& why) const;
  /// Drops what a rank has staged for iterations from `clock` on. Returns: how many batches; `example`, if empty, is
  /// set to name one.
  std::uint64_t fence(std::uint32_t rank, std::uint32_t clock, std::string& example);
  [[nodiscard]] std::uint64_t rows() const noexcept;

 private:
  struct refusal {
    net::status why = net::status::bad_request;
    std::string text;
  };
  using problem = std::optional<refusal>;
  struct staged_batch {
    std::uint32_t clock;
    std::uint32_t rank;
    std::uint64_t arrival;
    std::uint32_t count;
    bool named;
    shared_buffer payload;
    held_bytes counted;
  };
  /// By partition; under net::any_partition batches with rows of several, not yet split.
  using staged_batches = std::map<std::uint16_t, std::vector<staged_batch>>;
  struct typed_table {
    typed_table(std::string of, const net::table_definition& d, const loaded_update* f, std::uint32_t partitions);

    std::string name;
    std::vector<std::byte> definition;  ///< in wire format
    row_init init;
    const loaded_update* function;  ///< null: add
    row_table by_id;
    std::unique_ptr<row_table> by_name;  ///< created with the first name
    staged_batches staged;
    /// A batch, acknowledged when it was staged, could not be folded: by the partition of the row that failed.
    std::map<std::uint16_t, refusal> broken;
    std::uint16_t first_broken = 0;
    [[nodiscard]] problem failure() const {
      if (broken.empty()) return {};
      const auto first = broken.find(first_broken);
      return first != broken.end() ? first->second : broken.begin()->second;
    }
    [[nodiscard]] const row_layout& layout() const noexcept { return by_id.layout(); }
  };
  /// The destination of a reply that is more than a header.
  struct reply {
    net::reply_header header;
    std::vector<std::byte>* body = nullptr;
    shared_buffer tail;
  };

  /// `flags`: of the request; a format in which updates are to be sent.
  problem open(std::string_view name, std::span<const std::byte> definition, std::uint16_t flags, reply& out);
  static problem check_format(const std::string& table, value_tag element, const loaded_update* f, wire_format format,
                              net::verb what);
  void widen(const typed_table& t, wire_format format, net::rows_view& r);
  problem on_rows(const net::request_view& request, shared_buffer&& tail, reply& out, std::uint32_t& folded_clock);
  problem read_request(typed_table& t, const net::request_view& request, const shared_buffer& tail, net::rows_view& r);
  problem leave_out_applied(const net::request_header& h, typed_table& t, net::rows_view& r, shared_buffer& rest,
                            std::uint32_t& removed);
  void expect_answers(const net::request_header& h);
  void note_answers(const problem& p);
  void record_rows(typed_table& t, bool named);
  void touch_partitions();
  [[nodiscard]] std::uint64_t owned_rows(const row_table& rows) const;
  problem change(typed_table& t, row_table& rows, const net::request_view& request, const net::rows_view& r,
                 bool staged, shared_buffer&& tail, reply& out, std::uint32_t folded_clock);
  problem scan(typed_table& t, const net::request_view& request, reply& out);
  problem locate(const net::rows_view& rows, bool named);
  problem locate(const row_table& rows, row_list& list);
  problem check_owned() const;
  row_table& rows_of(typed_table& t, bool named);
  bool has_room(typed_table& t, const row_table& rows, std::size_t staged_bytes) const;
  problem pull(typed_table& t, row_table& rows, const net::rows_view& r, const net::request_header& h, reply& out);
  void push(typed_table& t, row_table& rows, const net::rows_view& r);
  void look_for_nan(const typed_table& t, const row_table& rows);
  problem update(typed_table& t, row_table& rows, const net::rows_view& r);
  void remove(row_table& rows, const net::rows_view& r, reply& out) noexcept;
  problem no_memory(const typed_table& t) const noexcept;
  problem stage(typed_table& t, const net::request_view& request, shared_buffer&& tail, std::uint32_t folded_clock);
  bool fold_before(std::uint32_t clock, typed_table& t, const std::function<bool()>& over);
  void fold(typed_table& t, const staged_batch& b, std::uint16_t partition,
            std::map<std::uint16_t, refusal>::node_type& failure) noexcept;
  void split_staged(typed_table& t);
  [[nodiscard]] held_bytes counted(const shared_buffer& payload) noexcept;
  void encode_rows(std::uint32_t id, typed_table& t, bool named, std::uint16_t partition, std::vector<std::byte>& out);
  static void append_row(std::vector<std::byte>& out, std::uint32_t id, const row_table& rows, const std::byte* row);
  static void append_staged(std::vector<std::byte>& out, std::uint32_t id, const staged_batch& b);
  static void append_broken(std::vector<std::byte>& out, std::uint32_t id, const refusal& why);
  static const char* wrong_in_row(std::uint16_t partition, const typed_table* t, const record& r);
  static std::string wrong_in_staged(std::uint16_t partition, const typed_table& t, const record& r);
  problem apply_row(std::uint16_t partition, typed_table& t, const record& r);
  void apply_staged(std::uint16_t partition, typed_table& t, const record& r);
  void forget_staged(typed_table& t, std::uint16_t partition, std::uint32_t before);

  template <class Key, class Work>
  bool each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work, bool note_made);
  template <class Work>
  bool each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work, bool note_made = false);

  const key_store& keys_;
  plugin_registry& plugins_;
  change_log& changes_;
  nan_watch& nans_;
  partition_load& load_;
  struct partition_in_hand {
    std::uint16_t partition;
    std::uint32_t removed;
  };
  std::vector<partition_in_hand> in_hand_;  // of a request that is remembered, in ascending order
  static constexpr std::uint16_t not_here = 0xffff;
  std::vector<std::uint16_t> place_of_;  // by partition: its number within the shard, or not_here
  std::uint32_t partitions_;
  byte_budget staged_bytes_;  // within the limit of the keys and rows
  std::map<std::uint32_t, std::unique_ptr<typed_table>> tables_;
  std::uint64_t staged_count_ = 0;
  std::uint32_t folded_to_ = 0;  // no batch of an own partition waits for a clock before this one
  std::uint64_t arrivals_ = 0;

  row_lists lists_{keys_.settings().max_set_bytes};

  // The current request; capacities are reused.
  std::span<const std::uint64_t> hashes_;  // of a list, or in the memory below
  std::span<const std::uint64_t> ids_;
  row_list* list_ = nullptr;  // that it names or contains
  std::vector<std::uint64_t> hash_memory_;
  std::vector<std::uint64_t> id_memory_;
  std::vector<std::string_view> names_;
  std::vector<const std::byte*> found_;
  std::vector<std::byte> body_;
  std::vector<std::byte> before_;  // backup of a row
  std::vector<double> gradient_;   // aligned copy of a row of the payload
  std::vector<double> widened_;    // values that came in fewer bits
  std::size_t failed_row_ = 0;     // the first row not handled
};

}  // namespace paracel::srv
