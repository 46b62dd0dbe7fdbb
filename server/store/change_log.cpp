// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/change_log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/free_memory.hpp>

#include "core/check.hpp"
#include "server/store/partition_records.hpp"

namespace paracel::srv {

using net::verb;

namespace {

constexpr std::size_t item_front_bytes = 16;
constexpr std::size_t kept_list_bytes = std::size_t{1} << 20;

std::size_t item_bytes(const std::byte* at) noexcept {
  std::uint32_t value = 0;
  load_fields(at, value);
  return item_front_bytes + value;
}

/// As net::append_item writes it, without a value.
std::array<std::byte, item_front_bytes> front_of(std::uint64_t version, value_tag tag) noexcept {
  std::array<std::byte, item_front_bytes> front;
  store_fields(front.data(), std::uint32_t{0}, tag, std::uint8_t{0}, net::status::ok, version);
  return front;
}

template <class T>
void empty_again(std::vector<T>& v) noexcept {
  free_if_larger(v, kept_list_bytes);
  v.clear();
}

}  // namespace

void change_log::begin_request(const net::request_header& h) noexcept {
  request_ = {h.client, h.low_watermark, h.sequence};
  whole_ = false;
  remembers_ = changes_state(h.what) && h.client != 0 && h.sequence != 0;
  retried_ = remembers_ && applied_.knows(h.client, h.sequence);
  changes_before_ = count();
  expected_.clear();
  items_left_ = 0;
  parts_.clear();
  items_.clear();
  replayed_.clear();
}

void change_log::begin_whole(const net::request_header& h) noexcept {
  if (h.client == 0 || h.sequence == 0) return;
  request_ = {h.client, h.low_watermark, h.sequence};
  remembers_ = true;
  whole_ = true;
  lost_ = false;
  retried_ = applied_.knows(h.client, h.sequence);
  alike_ = 0;
  alike_tag_ = value_tag::none;
  version_ = 0;
  parts_.clear();
  items_.clear();
  if (!replayed_.empty()) [[unlikely]]
    replayed_.clear();
}

void change_log::hold_place() {
  if (retried_) [[unlikely]]
    (void)replay_of(net::any_partition);
  applied_.await(request_.client, request_.sequence, net::any_partition);
}

void change_log::hold_all_places() {
  const auto items = expected_.size();
  make_room(parts_, items);
  make_room(items_, items * item_front_bytes);
  make_room(kept_items_, items * item_front_bytes);
  if (watches()) make_room(touched_, items);
  std::sort(expected_.begin(), expected_.end());
  expected_.erase(std::unique(expected_.begin(), expected_.end()), expected_.end());
  make_room(parts_kept_, expected_.size());
  if (retried_) [[unlikely]] {
    for (const auto p : expected_) (void)replay_of(p);
  }
  for (const auto p : expected_) applied_.await(request_.client, request_.sequence, p);
  items_left_ = items;
}

void change_log::answered(std::uint16_t partition, net::status result, std::uint64_t version, const value_view& value) {
  if (!remembers_) return;
  if (whole_) {
    if (!parts_.empty() || result != net::status::ok || value.tag != value_tag::none) [[unlikely]]
      return answered_in_whole(result, version, value);
    ++alike_;
    version_ = version;
    return;
  }
  const auto at = items_.size();
  const bool left_out =
      value.bytes.size() > most_answer_bytes || !try_room(items_, value.bytes.size() + items_left_ * item_front_bytes);
  net::append_item(items_, result, version, left_out ? value_view{value.tag, {}} : value);
  if (left_out) std::memset(items_.data() + at, 0xff, sizeof(std::uint32_t));  // a mark until the part is complete
  parts_.push_back({partition, at, items_.size() - at});
  PARACEL_ASSERT(at < items_.size());
  if (items_left_ != 0) --items_left_;
}

/// An item that is more than a plain `ok`, or follows such an item.
void change_log::answered_in_whole(net::status result, std::uint64_t version, const value_view& value) noexcept {
  const bool left_out = value.bytes.size() > most_answer_bytes;
  if ((parts_.empty() && !spell_out()) || !try_room(parts_, 1) ||
      !try_room(items_, item_front_bytes + (left_out ? 0 : value.bytes.size()))) {
    lost_ = true;
    return;
  }
  const auto at = items_.size();
  net::append_item(items_, result, version, left_out ? value_view{value.tag, {}} : value);
  if (left_out) std::memset(items_.data() + at, 0xff, sizeof(std::uint32_t));  // as above
  parts_.push_back({net::any_partition, at, items_.size() - at});
}

/// Writes the items counted so far one by one. False: there is no memory.
bool change_log::spell_out() noexcept {
  const auto n = std::exchange(alike_, 0);
  if (!try_room(parts_, n + 1) || !try_room(items_, (n + 1) * item_front_bytes)) return false;
  for (std::size_t i = 0; i < n; ++i) {
    parts_.push_back({net::any_partition, items_.size(), item_front_bytes});
    net::append_item(items_, net::status::ok, n == 1 ? version_ : 0, {});
  }
  return true;
}

/// As keep_answers, for a request that is remembered as a whole.
void change_log::keep_answer() noexcept {
  const auto& [client, low, sequence] = request_;
  const bool answered = alike_ != 0 || !parts_.empty() || lost_;
  if (!answered || (retried_ && replay_of(net::any_partition).how != dedup_window::verdict::fresh)) {
    applied_.release_places(client, sequence);
    return;
  }
  if (!lost_ && parts_.empty()) [[likely]] {
    const bool one = alike_ == 1 && alike_tag_ == value_tag::none;
    std::uint16_t flags = one ? 0 : record_alike;
    if (alike_tag_ != value_tag::none) flags |= record_values_left_out;
    const auto item = front_of(one ? version_ : alike_, alike_tag_);
    return applied_.add(client, low, sequence, net::any_partition, {flags, item});  // its place is reserved
  }
  std::uint16_t flags = 0;
  std::span<const std::byte> items;
  if (!lost_ && try_room(kept_items_, items_.size())) {
    flags = write_items(parts_, true);
    items = kept_items_;
  }
  try {
    applied_.add(client, low, sequence, net::any_partition, {flags, items});
  } catch (const std::bad_alloc&) {  // as above
    applied_.add(client, low, sequence, net::any_partition, {flags, {}});
  }
  if (!recording_) kept_items_.clear();
  free_if_larger(items_, kept_list_bytes);
  free_if_larger(parts_, kept_list_bytes);
}

void change_log::keep_answers() noexcept {
  std::size_t kept = 0;
  if (!parts_.empty() && count() != changes_before_) {
    if (parts_.size() > 1) {
      std::stable_sort(parts_.begin(), parts_.end(),
                       [](const auto& a, const auto& b) { return a.partition < b.partition; });
    }
    const bool with_values = try_room(kept_items_, items_.size());
    for (std::size_t i = 0; i < parts_.size(); ++kept) {
      auto behind = i + 1;
      while (behind < parts_.size() && parts_[behind].partition == parts_[i].partition) ++behind;
      keep_part(parts_[i].partition, std::span(parts_).subspan(i, behind - i), with_values);
      i = behind;
    }
  }
  if (kept != expected_.size()) applied_.release_places(request_.client, request_.sequence);
}

/// Appends the answers to kept_items_. Returns: the flags of their record.
std::uint16_t change_log::write_items(std::span<const part> parts, bool with_values) noexcept {
  std::size_t bytes = 0;
  bool left_out = !with_values;
  for (const auto& p : parts) {
    bytes += p.bytes;
    std::uint32_t value = 0;
    load_fields(items_.data() + p.at, value);
    left_out = left_out || value == 0xffffffffU;
  }
  left_out = left_out || bytes > most_answer_bytes + parts.size() * item_front_bytes;
  for (const auto& p : parts) {
    const auto* from = items_.data() + p.at;
    kept_items_.insert(kept_items_.end(), from, from + (left_out ? item_front_bytes : p.bytes));
    if (left_out) std::memset(kept_items_.data() + kept_items_.size() - item_front_bytes, 0, sizeof(std::uint32_t));
  }
  return left_out ? record_values_left_out : std::uint16_t{0};
}

void change_log::keep_part(std::uint16_t partition, std::span<const part> parts, bool with_values) noexcept {
  const auto at = kept_items_.size();
  const auto flags = write_items(parts, with_values);
  const auto low = request_.low;
  try {
    applied_.add(request_.client, low, request_.sequence, partition, {flags, std::span(kept_items_).subspan(at)});
  } catch (const std::bad_alloc&) {  // its place is reserved
    kept_items_.resize(at);
    applied_.add(request_.client, low, request_.sequence, partition, {flags, {}});
  }
  parts_kept_.push_back({partition, flags, request_.client, low, request_.sequence, at, kept_items_.size() - at});
}

/// The previous answer to this partition's part of the current request.
change_log::replayed& change_log::replay_of(std::uint16_t partition) {
  if (const auto known = replayed_.find(partition); known != replayed_.end()) return known->second;
  replayed r;
  dedup_window::answer a;
  r.how = applied_.find(request_.client, request_.sequence, partition, a);
  if (r.how == dedup_window::verdict::applied) {
    r.values_left_out = (a.flags & record_values_left_out) != 0;
    r.items.assign(a.items.begin(), a.items.end());
    if ((a.flags & record_alike) != 0 && r.items.size() == item_front_bytes) {
      net::reply_items one(r.items, 1);
      if (net::reply_item item; one.next(item)) r.alike = item.version;
      if (r.alike == 0) r.items.clear();
    }
  }
  return replayed_.emplace(partition, std::move(r)).first->second;
}

dedup_window::verdict change_log::next_answer(std::uint16_t partition, earlier& out) {
  auto& r = replay_of(whole_ ? net::any_partition : partition);
  if (r.how != dedup_window::verdict::applied) return r.how;
  // More items than it had: the request is not the one that it claims to be.
  if (r.items.size() - r.at < item_front_bytes || item_bytes(r.items.data() + r.at) > r.items.size() - r.at) {
    return dedup_window::verdict::expired;
  }
  const auto bytes = item_bytes(r.items.data() + r.at);
  net::reply_items one(std::span(r.items).subspan(r.at, bytes), 1);
  if (!one.next(out.item)) return dedup_window::verdict::expired;
  out.values_left_out = r.values_left_out;
  if (r.alike != 0) {
    out.item.version = 0;
    if (--r.alike != 0) return r.how;
  }
  r.at += bytes;
  return r.how;
}

void change_log::clear() noexcept {
  empty_again(texts_);
  empty_again(keys_);
  empty_again(rows_);
  empty_again(batches_);
  empty_again(cleared_);
  empty_again(touched_);
  empty_again(parts_kept_);
  empty_again(kept_items_);
}

}  // namespace paracel::srv
