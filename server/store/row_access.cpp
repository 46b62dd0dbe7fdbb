// SPDX-License-Identifier: BSD-3-Clause
//
// Finds, creates, reads and changes the rows of one request.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "server/plugin/last_words.hpp"
#include "server/store/row_service.hpp"

namespace paracel::srv {

using net::status;

namespace {

// How far ahead rows are prefetched, and their slots twice as far: about as many lines as a core keeps in flight.
constexpr std::size_t rows_ahead = 16;
constexpr std::size_t line_bytes = 64;
// Beyond this the hardware prefetcher takes over.
constexpr std::size_t prefetched_bytes = 512;

void prefetch_row(const std::byte* row, std::size_t bytes) noexcept {
  const auto n = std::min(bytes, prefetched_bytes);
  for (std::size_t at = 0; at < n; at += line_bytes) __builtin_prefetch(row + at, 1);
  __builtin_prefetch(row + n - 1, 1);
}

template <class F>
void with_element(value_tag t, const F& f) {
  switch (t) {
    case value_tag::i32:
      return f(std::int32_t{});
    case value_tag::i64:
      return f(std::int64_t{});
    case value_tag::f32:
      return f(float{});
    default:
      return f(double{});
  }
}

/// Numbers in a payload may be unaligned.
template <class T>
void add(std::byte* row, const std::byte* delta, std::size_t width) noexcept {
  auto* __restrict v = reinterpret_cast<T*>(row);
  for (std::size_t j = 0; j < width; ++j) {
    T d;
    load_fields(delta + j * sizeof(T), d);
    if constexpr (std::is_integral_v<T>) {
      using bits = std::make_unsigned_t<T>;
      v[j] = static_cast<T>(static_cast<bits>(v[j]) + static_cast<bits>(d));
    } else {
      v[j] += d;
    }
  }
}

std::string shown_number(double x) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.6g", x);
  return text.data();
}

std::string shown_row(std::uint64_t id) { return "row " + std::to_string(id); }
std::string shown_row(std::string_view name) {
  std::string text = "row \"";
  for (const char c : name.substr(0, 120)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + "\"";
}

}  // namespace

/// Whether there is memory for those of the located rows that are missing.
/// `staged_bytes`: of the batch, if it is to wait for the clock.
bool row_service::has_room(typed_table& t, const row_table& rows, std::size_t staged_bytes) const {
  constexpr std::size_t index_bytes = 16;  // of a row, upper bound
  const auto row_bytes = t.layout().stride() + index_bytes;
  if (keys_.has_room(hashes_.size() * row_bytes + staged_bytes)) return true;
  if (staged_bytes != 0) return false;
  std::size_t missing = 0;
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    const auto place = place_of_[partition_of(hashes_[i])];
    const auto* row = rows.named() ? rows.find(place, hashes_[i], names_[i]) : rows.find(place, hashes_[i], ids_[i]);
    if (row == nullptr) ++missing;
  }
  return missing == 0 || keys_.has_room(missing * row_bytes);
}

/// Hashes all rows of a request. Nothing is handled if one of them belongs to another shard.
row_service::problem row_service::locate(const net::rows_view& r, bool named) {
  PARACEL_ASSERT(named || r.texts.empty());
  list_ = nullptr;
  hash_memory_.resize(r.count);
  if (named) {
    names_.resize(r.count);
    std::size_t at = 0;
    for (std::size_t i = 0; i < r.count; ++i) {
      names_[i] = r.texts.substr(at, r.length(i));
      at += names_[i].size();
      hash_memory_[i] = net::hash_row(names_[i]);
    }
  } else {
    id_memory_.resize(r.count);  // ids sent as gaps have already been decoded into it
    for (std::size_t i = 0; i < r.count; ++i) {
      id_memory_[i] = r.id(i);
      hash_memory_[i] = net::hash_row(id_memory_[i]);
    }
  }
  hashes_ = hash_memory_;
  ids_ = id_memory_;
  return check_owned();
}

row_service::problem row_service::locate(const row_table& rows, row_list& list) {
  list_ = &list;
  hashes_ = list.hashes();
  ids_ = list.ids();
  if (list.is_resolved(rows, keys_.owned())) return {};
  return check_owned();
}

row_service::problem row_service::check_owned() const {
  const auto* owned = keys_.owned();
  for (const auto hash : hashes_) {
    const auto partition = partition_of(hash);
    if (place_of_[partition] == not_here || (owned != nullptr && !owned->mine[partition]))
      return refusal{status::wrong_owner, keys_.not_mine(partition)};
  }
  return {};
}

/// Calls `work(i, row)` for each row that `locate` has found, in order. Missing rows are created, and noted in the
/// change log before that if `note_made`. `bytes` of a row are prefetched. Stops with false when `work` returns false.
template <class Key, class Work>
bool row_service::each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work, bool note_made) {
  const auto key = [&](std::size_t i) -> Key {
    if constexpr (std::is_same_v<Key, std::uint64_t>) return ids_[i];
    else return names_[i];
  };
  const auto made = [&](std::size_t i, std::uint32_t place) {
    failed_row_ = i;  // if there is no memory for it
    if (note_made) changes_.row(net::table_id(t.name), hashes_[i], key(i));
    auto* row = rows.make(place, hashes_[i], key(i));
    with_element(t.layout().element, [&](auto zero) {
      using element = decltype(zero);
      std::uint64_t id = 0;
      if constexpr (std::is_same_v<Key, std::uint64_t>) id = ids_[i];
      else id = hashes_[i];
      t.init.fill(id, std::span(reinterpret_cast<element*>(row + row_layout::value_at), t.layout().width));
    });
    return row;
  };
  const auto count = hashes_.size();
  auto* list = std::is_same_v<Key, std::uint64_t> ? list_ : nullptr;
  if (list != nullptr && list->is_resolved(rows, keys_.owned())) {
    const auto all = list->rows();
    for (std::size_t i = 0; i < count; ++i) {
      if (i + rows_ahead < count) prefetch_row(all[i + rows_ahead], bytes);
      if (!work(i, all[i])) return false;
    }
    return true;
  }
  std::array<std::byte*, 2 * rows_ahead> guess;
  std::array<std::uint32_t, 2 * rows_ahead> place;
  const auto fetch_slot = [&](std::size_t i) {
    auto& p = place[i % place.size()];
    p = place_of_[partition_of(hashes_[i])];
    rows.prefetch_slot(p, hashes_[i]);
  };
  const auto fetch_row = [&](std::size_t i) {
    auto& row = guess[i % guess.size()];
    row = rows.guess(place[i % place.size()], hashes_[i]);
    if (row != nullptr) prefetch_row(row, bytes);
  };
  for (std::size_t i = 0; i < std::min(count, 2 * rows_ahead); ++i) fetch_slot(i);
  for (std::size_t i = 0; i < std::min(count, rows_ahead); ++i) fetch_row(i);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + rows_ahead < count) fetch_row(i + rows_ahead);
    auto* row = guess[i % guess.size()];
    const auto here = place[i % place.size()];
    if (i + 2 * rows_ahead < count) fetch_slot(i + 2 * rows_ahead);
    if (row == nullptr || !row_table::is(row, key(i))) {
      row = rows.find(here, hashes_[i], key(i));
      if (row == nullptr) row = made(i, here);
    }
    if (list != nullptr) list->found(i, row);
    if (!work(i, row)) return false;
  }
  if (list != nullptr) list->resolved(rows, keys_.owned());
  return true;
}

template <class Work>
bool row_service::each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work, bool note_made) {
  return rows.named() ? each_row<std::string_view>(t, rows, bytes, work, note_made)
                      : each_row<std::uint64_t>(t, rows, bytes, work, note_made);
}

row_service::problem row_service::pull(typed_table& t, row_table& rows, const net::rows_view& r,
                                       const net::request_header& h, reply& out) {
  const auto& l = t.layout();
  const auto format = *net::format_of(h.flags);
  const auto row_bytes = net::wire_bytes(format, l.element, l.width);
  const auto bytes = r.count * row_bytes;
  const auto most = keys_.settings().max_message_bytes - net::reply_header_bytes;
  if (bytes > most || (h.credit != 0 && bytes > h.credit)) {
    return refusal{status::too_large, std::to_string(r.count) + " rows of " + std::to_string(row_bytes) +
                                          " bytes are more than one reply may hold"};
  }
  std::byte* to = nullptr;
  if (bytes > net::tail_threshold_bytes) {
    out.tail = shared_buffer::allocate(bytes);
    to = out.tail.mutable_data();
  } else {
    body_.resize(bytes);
    out.body = &body_;
    to = body_.data();
  }
  out.header.tag = static_cast<value_tag>(static_cast<unsigned>(l.element) | 0x10U);
  if (format != wire_format::full) {
    std::optional<double> number;
    std::size_t row_of_number = 0;
    const auto narrow = [&](std::size_t i, const std::byte* row) {
      const auto* values = row + row_layout::value_at;
      number = net::beyond(format, l.element, values, l.width);
      row_of_number = i;
      if (!number) net::quantise(format, l.element, values, l.width, to + i * row_bytes);
      return !number;
    };
    if (each_row(t, rows, row_layout::value_at + l.value_bytes(), narrow, true)) return {};
    const auto name = rows.named() ? shown_row(names_[row_of_number]) : shown_row(ids_[row_of_number]);
    out = {};
    return refusal{status::too_large, "table \"" + t.name + "\", " + name + ": found " + shown_number(*number) +
                                          ", want at most what " + net::name_of(format) +
                                          " can hold (wire_format::full has no such limit)"};
  }
  const auto each = [&](auto width) {
    const auto copy = [&](std::size_t i, const std::byte* row) {
      std::memcpy(to + i * width, row + row_layout::value_at, width);
      return true;
    };
    each_row(t, rows, row_layout::value_at + width, copy, true);
  };
  if (row_bytes == 4) each(std::integral_constant<std::size_t, 4>());
  else if (row_bytes == 8) each(std::integral_constant<std::size_t, 8>());
  else each(row_bytes);
  return {};
}

void row_service::push(typed_table& t, row_table& rows, const net::rows_view& r) {
  const auto& l = t.layout();
  const auto row_bytes = l.value_bytes();
  each_row(t, rows, l.row_bytes(), [&](std::size_t i, std::byte* row) {
    std::memcpy(row + row_layout::value_at, r.values.data() + i * row_bytes, row_bytes);
    std::memset(row + l.state_at(), 0, l.row_bytes() - l.state_at());
    return true;
  });
}

/// After an update, in one row of the batch.
void row_service::look_for_nan(const typed_table& t, const row_table& rows) {
  static const std::string addition = "addition";
  if (hashes_.empty() || !nans_.is_due()) return;
  const auto i = nans_.turn() % hashes_.size();
  const auto place = place_of_[partition_of(hashes_[i])];
  const auto* row = rows.named() ? rows.find(place, hashes_[i], names_[i]) : rows.find(place, hashes_[i], ids_[i]);
  if (row == nullptr) return;
  nans_.look(t.function == nullptr ? addition : t.function->name, t.layout().element,
             {row + row_layout::value_at, t.layout().value_bytes()},
             [&] { return "table \"" + t.name + "\", " + (rows.named() ? shown_row(names_[i]) : shown_row(ids_[i])); });
}

row_service::problem row_service::update(typed_table& t, row_table& rows, const net::rows_view& r) {
  const auto& l = t.layout();
  const auto row_bytes = l.value_bytes();
  const std::byte* delta = r.values.data();
  if (t.function == nullptr) {
    with_element(l.element, [&](auto zero) {
      using element = decltype(zero);
      const auto each = [&](auto width) {
        each_row(t, rows, l.row_bytes(), [&](std::size_t i, std::byte* row) {
          add<element>(row + row_layout::value_at, delta + i * width * sizeof(element), width);
          return true;
        });
      };
      if (l.width == 1) each(std::integral_constant<std::size_t, 1>());
      else each(std::size_t{l.width});
    });
    look_for_nan(t, rows);
    return {};
  }

  const auto& f = *t.function;
  failed_row_ = 0;
  if (const auto* why = f.refused.why())
    return refusal{status::plugin_failed, "table \"" + t.name + "\": " + f.name + ": " + *why};
  std::array<char, 1024> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const bool aligned = reinterpret_cast<std::uintptr_t>(delta) % element_bytes(l.element) == 0;
  gradient_.resize(aligned ? 0 : (row_bytes + sizeof(double) - 1) / sizeof(double));
  const bool may_fail = f.optimizer != nullptr ? (f.optimizer->flags & abi::step_no_throw) == 0
                                               : (f.function->flags & abi::no_throw) == 0;
  before_.resize(may_fail ? l.row_bytes() : 0);
  std::int32_t ended = abi::ok;
  std::size_t failed = 0;
  const in_user_call mark({&f.name, f.id, t.name});
  const bool all = each_row(t, rows, l.row_bytes(), [&](std::size_t i, std::byte* row) {
    if (rows.named()) current_call.set_key(names_[i]);
    else current_call.set_row(ids_[i]);
    const auto* change = delta + i * row_bytes;
    if (!aligned) {
      std::memcpy(gradient_.data(), change, row_bytes);
      change = reinterpret_cast<const std::byte*>(gradient_.data());
    }
    if (may_fail) std::memcpy(before_.data(), row, before_.size());
    auto* value = row + row_layout::value_at;
    const auto tag = static_cast<std::uint8_t>(l.element);
    if (f.optimizer != nullptr) {
      std::uint32_t number = 0;
      if (l.counts_steps) {
        load_fields(row + l.steps_at(), number);
        if (number != 0xffffffffU) ++number;
        store_fields(row + l.steps_at(), number);
      }
      ended = f.optimizer->step(f.optimizer, f.hyper.data(), tag, value, row + l.state_at(), change, l.width, number,
                                &text);
    } else {
      ended = f.function->in_place(f.function, tag, value, change, l.width, &text);
    }
    if (ended == abi::ok) return true;
    if (may_fail) std::memcpy(row, before_.data(), before_.size());
    failed = i;
    return false;
  });
  look_for_nan(t, rows);
  if (all) return {};
  failed_row_ = failed;
  const auto row = rows.named() ? shown_row(names_[failed]) : shown_row(ids_[failed]);
  return refusal{ended == abi::type_mismatch ? status::type_mismatch : status::plugin_failed,
                 "table \"" + t.name + "\", " + row + ": " + f.name + ": " +
                     (buffer[0] != '\0' ? buffer.data() : "failed without a reason") + "; the row is as before, " +
                     std::to_string(failed) + " of the batch were updated"};
}

void row_service::remove(row_table& rows, const net::rows_view& r, reply& out) noexcept {
  out.header.count = 0;
  for (std::size_t i = 0; i < r.count; ++i) {
    const auto place = place_of_[partition_of(hashes_[i])];
    const bool there = rows.named() ? rows.erase(place, hashes_[i], names_[i]) : rows.erase(place, hashes_[i], ids_[i]);
    if (!there) continue;
    ++out.header.count;
    const auto p = std::ranges::lower_bound(in_hand_, partition_of(hashes_[i]), {}, &partition_in_hand::partition);
    if (p != in_hand_.end()) ++p->removed;
  }
}

}  // namespace paracel::srv
