// SPDX-License-Identifier: BSD-3-Clause
//
// The typed tables of a shard and the verbs on their rows; src/net/rows.hpp draws what travels. Tables are made by
// table_open, which every shard is sent, and stay; clear empties them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/blob.hpp"
#include "net/protocol.hpp"
#include "net/rows.hpp"
#include "server/completion.hpp"
#include "server/key_store.hpp"
#include "server/plugin_registry.hpp"
#include "server/row_table.hpp"

namespace paracel::srv {

/// Thread-safety: owned by the shard thread.
/// Lifetime: keys and plug-ins outlive it; of the keys it asks only whose a partition is.
class rows_service {
 public:
  rows_service(const key_store& keys, plugin_registry& plugins);

  /// What a request has come to, for the counters.
  struct served {
    std::size_t bytes_out = 0;
    bool failed = false;
  };
  /// Verbs from table_open to rows_scan; answers `done`. `folded_clock` is the shard's: everything before it is complete.
  /// Throws: std::bad_alloc; rows handled before are as they are then.
  served handle(const net::request_view& request, blob tail, completion& done, std::uint32_t& folded_clock);
  /// What the request will be in while it is handled, for whoever watches over long runs; lives as long as the plug-ins.
  [[nodiscard]] const std::string& doing(const net::request_header& header) const noexcept;

  /// Removes all rows and what is staged. The tables stay open.
  void clear() noexcept;

  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  /// Batches that wait for the clock.
  [[nodiscard]] std::uint64_t staged() const noexcept { return staged_count_; }
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
    blob payload;
  };
  struct typed_table {
    typed_table(std::string of, const net::table_definition& d, const loaded_update* f, std::uint32_t partitions);

    std::string name;
    row_init init;
    const loaded_update* function;  ///< null: add
    row_table by_id;
    std::unique_ptr<row_table> by_name;  ///< made with the first name
    std::vector<staged_batch> staged;
    problem broken;  ///< a batch, acknowledged when it was staged, could not be folded
    [[nodiscard]] const row_layout& layout() const noexcept { return by_id.layout(); }
  };
  /// Where an answer goes that is more than a header.
  struct reply {
    net::reply_header header;
    std::vector<std::byte>* body = nullptr;
    blob tail;
  };

  problem open(const net::request_view& request, reply& out);
  problem on_rows(const net::request_view& request, blob&& tail, reply& out, std::uint32_t& folded_clock);
  problem scan(typed_table& t, const net::request_view& request, reply& out);
  problem locate(const net::rows_view& rows, bool named);
  row_table& rows_of(typed_table& t, bool named);
  bool has_room(typed_table& t, const row_table& rows, bool staged) const;
  problem pull(typed_table& t, row_table& rows, const net::rows_view& r, std::uint32_t credit, reply& out);
  void push(typed_table& t, row_table& rows, const net::rows_view& r);
  problem update(typed_table& t, row_table& rows, const net::rows_view& r);
  void remove(row_table& rows, const net::rows_view& r, reply& out);
  problem stage(typed_table& t, const net::request_view& request, blob&& tail, std::uint32_t folded_clock);
  void fold_before(std::uint32_t clock, typed_table& t);

  template <class Key, class Work>
  bool each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work);
  template <class Work>
  bool each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work);

  const key_store& keys_;
  plugin_registry& plugins_;
  std::vector<std::uint16_t> place_of_;  // by partition: its number within the shard, or not_here
  std::uint32_t partitions_;
  std::map<std::uint32_t, std::unique_ptr<typed_table>> tables_;
  std::uint64_t staged_count_ = 0;
  std::uint64_t arrivals_ = 0;

  // Of the request in hand; capacities are used again.
  std::vector<std::uint64_t> hashes_;
  std::vector<std::uint64_t> ids_;
  std::vector<std::string_view> names_;
  std::vector<const std::byte*> found_;
  std::vector<std::byte> body_;
  std::vector<std::byte> before_;   // a row, to go back to
  std::vector<double> gradient_;    // a row of a payload that is not aligned
};

}  // namespace paracel::srv
