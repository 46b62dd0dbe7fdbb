// SPDX-License-Identifier: BSD-3-Clause
//
// The rows of one typed table as seen by a worker: from arrays of ids and numbers to one request per shard, and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/table.hpp>

#include "client/listed_rows.hpp"
#include "client/repeated_lists.hpp"
#include "core/distinct_ids.hpp"
#include "core/shared_buffer.hpp"
#include "net/row_codec.hpp"
#include "net/row_values.hpp"
#include "worker/parameters/parasrv.hpp"
#include "worker/parameters/row_residuals.hpp"

namespace paracel {

/// Thread-safety: owned by the thread of the parasrv, which must outlive it.
/// Cost: two passes over the rows (one to count them by shard, one to place them), neither if there is only one shard;
/// for updates one more lookup a row, to find duplicates, unless the ids strictly ascend. The scratch memory is reused.
/// A list of ids that is passed a second time is remembered here and at the shards (listed_rows): from then on a call
/// compares the ids, and sends a digest and the values. Up to `most_listed_bytes` of such lists are kept.
class table_client {
 public:
  using names = table_detail::row_names;
  using each_row = std::function<void(std::uint64_t, std::string_view, const std::byte*)>;

  static constexpr std::size_t least_listed = 64;  ///< shorter lists are not worth it
  static constexpr std::size_t most_listed_bytes = std::size_t{64} << 20;

  /// Opens the table at every shard.
  table_client(parasrv& servers, std::string name, const net::table_definition& definition,
               const table_options& options = {});

  void pull(const names& rows, std::byte* out);
  async_functor_type pull_async(const names& rows, std::byte* out);
  void push(const names& rows, const std::byte* values);
  void update(const names& rows, const std::byte* deltas, bool wait);
  /// Sends what quantised updates have kept back.
  void flush();
  [[nodiscard]] std::string residuals() const;
  void restore_residuals(std::string_view from);
  [[nodiscard]] std::size_t residual_bytes() const noexcept { return residuals_ ? residuals_->bytes() : 0; }
  std::uint64_t remove(const names& rows);
  std::uint64_t size();
  void scan(bool named, const each_row& each);

 private:
  /// How several deltas of one row are handled.
  enum class duplicates { keep, last, sum };
  /// One request: rows order_[first] ... of one shard.
  struct part {
    std::uint32_t channel;
    std::uint32_t first;
    std::uint32_t count;
  };
  /// What is sent of each row: numbers as they are, or updates, to which what earlier ones have kept back is added.
  struct row_values {
    const std::byte* rows = nullptr;  ///< null: names only
    bool are_updates = false;
  };
  /// A reply to a request on rows first ... first + count of those sent.
  using part_handler = std::function<void(std::uint32_t first, std::uint32_t count, const kv_result&)>;
  /// The requests of a call, which its handlers may add to.
  using requests = std::shared_ptr<std::vector<kvclt::sequence>>;
  struct pending_pull;
  struct listed_call;

  std::uint64_t open();
  static bool strictly_ascend(const names& rows);
  bool are_distinct(const names& rows);
  void find_places();
  void plan(const names& rows, std::size_t bytes_a_row, duplicates what);
  std::size_t place_unique(const names& rows);
  std::size_t place_merged(const names& rows, duplicates what);
  std::span<const std::byte> encode(const names& rows, const part& p, const row_values& values, std::uint16_t& flags,
                                    shared_buffer& large);
  [[nodiscard]] std::size_t bytes_of_row(std::uint16_t flags) const noexcept;
  /// Writes updates of rows, in the format of the flags: of row k, key_of(k), put_delta(k, row) writes its numbers.
  template <class KeyOf, class PutDelta>
  void write_updates(std::uint16_t flags, std::uint32_t count, const KeyOf& key_of, const PutDelta& put_delta,
                     std::byte* to) {
    constexpr std::uint32_t ahead = 8;
    const bool full = (flags & (net::flag_f16 | net::flag_i8)) == 0;
    auto* row = reinterpret_cast<std::byte*>(row_.data());
    for (std::uint32_t k = 0; k < count; ++k, to += bytes_of_row(flags)) {
      if (k + 2 * ahead < count) residuals_->prefetch_slot(key_of(k + 2 * ahead));
      if (k + ahead < count) residuals_->prefetch_row(key_of(k + ahead));
      put_delta(k, row);
      if (!full) {
        residuals_->quantise(key_of(k), row, to);
      } else {
        residuals_->release(key_of(k), row);
        std::memcpy(to, row, row_bytes_);
      }
    }
  }
  void drop_cleared_residuals() noexcept;
  void forget_residuals(const names& rows) noexcept;
  void send_update(const names& rows, const std::byte* deltas, bool wait, wire_format format);
  std::shared_ptr<pending_pull> send_pull(const names& rows, std::byte* out);
  /// Sends the planned requests, each with its part of the values. `sent` may be null.
  void send_parts(kvclt::call c, const names& rows, const row_values& values, const part_handler& done,
                  const requests& sent);
  /// The list of these ids if it is a repeated one; null: the ids must be sent.
  std::shared_ptr<listed_rows> find_list(const names& rows);
  std::shared_ptr<listed_rows> make_list(const names& rows);
  /// The same as send_parts for a list.
  void send_list(kvclt::call c, std::shared_ptr<listed_rows> list, const row_values& values, const part_handler& done,
                 const requests& sent);
  static void send_listed(const std::shared_ptr<listed_call>& call, std::uint32_t part);
  /// A push or an update; returns at once.
  void send_change(const kvclt::call& c, const names& rows, const row_values& values, duplicates what,
                   const part_handler& done, const requests& sent);
  /// Waits for what `send(done, sent)` sends. `each` receives the successful replies. `doing` is for the error's text.
  void finish(const char* doing, const std::function<void(const kv_result&)>& each,
              const std::function<void(const part_handler& done, const requests& sent)>& send);
  [[nodiscard]] std::string place() const { return "table \"" + name_ + "\""; }

  parasrv& servers_;
  std::string name_;
  std::vector<std::byte> definition_;
  std::uint32_t id_;
  value_tag element_;
  std::size_t row_bytes_;
  wire_format wire_;
  std::unique_ptr<row_residuals> residuals_;  // null: nothing is quantised
  std::uint64_t clears_ = 0;                  // of all keys and rows by this worker, as far as the residuals know
  std::vector<double> row_;                   // one row, aligned
  std::uint32_t epoch_ = 0;                   // of these places
  std::vector<std::uint32_t> channel_of_;     // by partition
  std::vector<std::uint32_t> channels_;       // all, of shards
  std::uint32_t most_channels_ = 0;

  // The current call. A row that is sent is one of the caller's, or several that are merged.
  bool in_order_ = false;  // one shard, no duplicates: the caller's rows as they are
  bool merged_ = false;    // there may be duplicates: row_of_ and next_of_ are valid
  distinct_ids distinct_;
  unsigned unexamined_ = 0;             // how many of the next lists are not examined
  std::vector<std::uint32_t> seen_;     // hash table: hash -> unique row + 1
  std::vector<std::uint32_t> row_of_;   // unique row -> its first occurrence (its last, if that counts)
  std::vector<std::uint32_t> last_of_;  // unique row -> its last occurrence
  std::vector<std::uint32_t> next_of_;  // row -> its next duplicate, or none
  std::vector<std::uint32_t> home_;     // unique row -> channel
  std::vector<std::uint32_t> end_;      // channel -> end of its range in order_
  std::vector<std::uint32_t> order_;    // unique rows by channel; empty if in_order_
  std::vector<part> parts_;
  std::vector<std::byte> payload_;

  repeated_lists<listed_rows> lists_{most_listed_bytes};
};

}  // namespace paracel
