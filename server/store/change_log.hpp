// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "core/hash.hpp"
#include "net/protocol.hpp"
#include "server/request/dedup_window.hpp"
#include "server/store/scarce_memory.hpp"

namespace paracel::srv {

/// What the requests of a batch have changed in a shard whose partitions have replicas: names only, since each is
/// written once with its final value; and how they were answered, by partition.
///
/// Before `record` nothing is noted. A request of a stream (net::flag_stream) may still be resent, to this very shard
/// and as a whole, so its answer is remembered as one part, that of net::any_partition; other requests cost a single
/// test a call.
///
/// Thread-safety: owned by the shard thread. Lifetime: the window must outlive it.
class change_log {
 public:
  /// Bytes of one partition's answers that are kept with their values; beyond it the values are left out.
  static constexpr std::size_t most_answer_bytes = 4096;

  /// The reply to a retry of which nothing is known any more.
  static constexpr std::string_view too_late = "it was resent so late that it is not known whether it was applied";

  explicit change_log(dedup_window& applied) : applied_(applied) {}

  /// From now on changes are noted, and all requests are remembered.
  void record() noexcept { recording_ = true; }
  [[nodiscard]] bool recording() const noexcept { return recording_; }

  // ---- the current request
  void begin(const net::request_header& h) noexcept {
    if (recording_) [[unlikely]]
      begin_request(h);
    else if ((h.flags & net::flag_stream) != 0 && changes_state(h.what)) begin_whole(h);
  }
  /// Whether `expect` is needed: answers are remembered by partition.
  [[nodiscard]] bool expects_partitions() const noexcept { return remembers_ && !whole_; }
  /// Another item of the request is about to be answered in this partition; `hold_places` follows.
  void expect(std::uint16_t partition) {
    if (expects_partitions()) expected_.push_back(partition);
  }
  /// Reserves memory for remembering what was expected: nothing after it can fail, so that whatever is changed is
  /// remembered even if the rest fails. Throws: std::bad_alloc; nothing has changed, and the request can be refused.
  void hold_places() {
    if (remembers_) whole_ ? hold_place() : hold_all_places();
  }
  /// Remembers the request's answer if it has changed anything; if it ended with an exception, the items answered so
  /// far. Values for which there is no memory are left out; if there is none but the reserved place, so is the answer:
  /// a retry is then told that it is unknown.
  void end() noexcept {
    if (!remembers_) return;
    if (whole_) [[likely]]
      keep_answer();
    else keep_answers();
    remembers_ = false;
    retried_ = false;
  }
  /// Whether it will be remembered if it changes anything.
  [[nodiscard]] bool remembers() const noexcept { return remembers_; }
  /// Whether some of it has been applied before.
  [[nodiscard]] bool retried() const noexcept { return retried_; }
  struct earlier {
    net::reply_item item;
    bool values_left_out = false;
  };
  /// For a retried request: the answer to the next item of this partition. Views are valid until the request ends.
  dedup_window::verdict next_answer(std::uint16_t partition, earlier& out);
  /// Records the answer to an item. Needs no memory if it was expected.
  void answered(std::uint16_t partition, net::status result, std::uint64_t version, const value_view& value);
  /// The same for `n` items, all `ok`, of a request that is remembered as a whole. Neither their values, if they have a
  /// tag, nor their versions are kept.
  void answered_alike(std::size_t n, value_tag left_out) noexcept {
    alike_ = n;
    alike_tag_ = left_out;
  }

  // ---- changes: noted before they are made, since there may be no memory for a note. What was noted and did
  // ---- not change is written as it is, which is harmless; `folded`, `rows_folded` and `cleared` come when nothing
  // ---- can fail any more.
  void key(std::uint64_t hash, std::string_view name) { note_key(hash, name, 0, whole, 0); }
  /// The key is removed, or was in between, with everything staged for it.
  void key_gone(std::uint64_t hash, std::string_view name) { note_key(hash, name, 0, whole | gone, 0); }
  void staged(std::uint64_t hash, std::string_view name, std::uint64_t arrival) {
    note_key(hash, name, arrival, waits, 0);
  }
  void folded(std::uint64_t hash, std::string_view name, std::uint32_t clock) { note_key(hash, name, 0, whole, clock); }
  void row(std::uint32_t table, std::uint64_t hash, std::uint64_t id) {
    if (recording_) rows_.push_back({table, false, hash, id, 0, 0});
  }
  void row(std::uint32_t table, std::uint64_t hash, std::string_view name) {
    if (recording_) rows_.push_back({table, true, hash, 0, keep(name), name.size()});
  }
  void rows_staged(std::uint32_t table, std::uint16_t partition, std::uint64_t arrival) {
    if (recording_) batches_.push_back({partition, table, 0, arrival});
  }
  void rows_folded(std::uint32_t table, std::uint16_t partition, std::uint32_t clock) {
    if (recording_) batches_.push_back({partition, table, clock, 0});
  }
  void cleared(std::uint16_t partition) {
    if (recording_) cleared_.push_back(partition);
  }
  /// Reserves memory for so many notes of a kind. Throws: std::bad_alloc.
  void make_room_for_batches(std::size_t n) {
    if (recording_) make_room(batches_, n);
  }
  void make_room_for_cleared(std::size_t n) {
    if (recording_) make_room(cleared_, n);
  }

  // ---- partitions whose replicas are not known to be up to date: they are to be synced when they are next served
  void watch(const std::bitset<partition_count>* incomplete) noexcept { incomplete_ = incomplete; }
  [[nodiscard]] bool watches() const noexcept { return incomplete_ != nullptr; }
  void touch(std::uint16_t partition) {
    if (incomplete_ != nullptr && (*incomplete_)[partition]) touched_.push_back(partition);
  }

  // ---- for the writer: shard::take_changes
  static constexpr std::uint8_t whole = 1;  ///< the value and all that is not staged
  static constexpr std::uint8_t gone = 2;
  static constexpr std::uint8_t waits = 4;  ///< what is staged from `arrival` on
  struct key_change {
    std::uint64_t hash;
    std::uint64_t arrival;
    std::size_t at;  ///< of its text
    std::uint32_t bytes;
    std::uint32_t folded;  ///< clock, or 0
    std::uint8_t what;
  };
  struct row_change {
    std::uint32_t table;
    bool named;
    std::uint64_t hash;
    std::uint64_t id;
    std::size_t at;
    std::size_t bytes;
  };
  struct batch_change {
    std::uint16_t partition;
    std::uint32_t table;
    std::uint32_t folded;  ///< clock, or 0: this batch was staged
    std::uint64_t arrival;
  };
  struct applied_part {
    std::uint16_t partition;
    std::uint16_t flags;
    std::uint64_t client;
    std::uint64_t low;
    std::uint64_t sequence;
    std::size_t at;
    std::size_t bytes;
  };
  [[nodiscard]] bool empty() const noexcept { return count() == 0 && parts_kept_.empty() && touched_.empty(); }
  [[nodiscard]] std::string_view text(std::size_t at, std::size_t bytes) const noexcept {
    return {texts_.data() + at, bytes};
  }
  [[nodiscard]] std::vector<key_change>& keys() noexcept { return keys_; }
  [[nodiscard]] std::vector<row_change>& rows() noexcept { return rows_; }
  [[nodiscard]] std::vector<batch_change>& batches() noexcept { return batches_; }
  [[nodiscard]] std::vector<std::uint16_t>& cleared() noexcept { return cleared_; }
  [[nodiscard]] std::vector<applied_part>& applied() noexcept { return parts_kept_; }
  [[nodiscard]] std::span<const std::byte> items(const applied_part& p) const noexcept {
    return std::span(kept_items_).subspan(p.at, p.bytes);
  }
  [[nodiscard]] std::vector<std::uint16_t>& touched() noexcept { return touched_; }
  void clear() noexcept;

 private:
  struct part {
    std::uint16_t partition;
    std::size_t at;
    std::size_t bytes;
  };
  struct replayed {
    dedup_window::verdict how = dedup_window::verdict::fresh;
    bool values_left_out = false;
    std::vector<std::byte> items;
    std::size_t at = 0;
    std::uint64_t alike = 0;  // number of items that the single one in `items` stands for
  };
  [[nodiscard]] std::size_t count() const noexcept {
    return keys_.size() + rows_.size() + batches_.size() + cleared_.size();
  }
  std::size_t keep(std::string_view text) {
    texts_.insert(texts_.end(), text.begin(), text.end());
    return texts_.size() - text.size();
  }
  void note_key(std::uint64_t hash, std::string_view name, std::uint64_t arrival, int what, std::uint32_t folded) {
    if (!recording_) [[likely]]
      return;
    keys_.push_back(
        {hash, arrival, keep(name), static_cast<std::uint32_t>(name.size()), folded, static_cast<std::uint8_t>(what)});
  }
  void begin_request(const net::request_header& h) noexcept;
  void begin_whole(const net::request_header& h) noexcept;
  void hold_all_places();
  void hold_place();
  void keep_answers() noexcept;
  void keep_answer() noexcept;
  void answered_in_whole(net::status result, std::uint64_t version, const value_view& value) noexcept;
  bool spell_out() noexcept;
  std::uint16_t write_items(std::span<const part> parts, bool with_values) noexcept;
  replayed& replay_of(std::uint16_t partition);
  void keep_part(std::uint16_t partition, std::span<const part> parts, bool with_values) noexcept;

  dedup_window& applied_;
  std::vector<char> texts_;
  std::vector<key_change> keys_;
  std::vector<row_change> rows_;
  std::vector<batch_change> batches_;
  std::vector<std::uint16_t> cleared_;
  std::vector<std::uint16_t> touched_;
  std::vector<applied_part> parts_kept_;
  std::vector<std::byte> kept_items_;
  const std::bitset<partition_count>* incomplete_ = nullptr;

  bool recording_ = false;

  // The current request.
  struct identity {
    std::uint64_t client = 0;
    std::uint64_t low = 0;  // the client's watermark
    std::uint64_t sequence = 0;
  } request_;
  bool remembers_ = false;
  bool retried_ = false;
  bool whole_ = false;                     // it is remembered as one part
  bool lost_ = false;                      // there was no memory for its answer
  std::size_t alike_ = 0;                  // leading items answered with a plain `ok`: parts_ has the rest
  value_tag alike_tag_ = value_tag::none;  // of their values, which are not kept
  std::uint64_t version_ = 0;              // of the last of them
  std::size_t changes_before_ = 0;
  std::vector<std::uint16_t> expected_;  // the partition of each item, later each once
  std::size_t items_left_ = 0;           // still to be answered
  std::vector<part> parts_;
  std::vector<std::byte> items_;
  std::map<std::uint16_t, replayed> replayed_;
};

}  // namespace paracel::srv
