// SPDX-License-Identifier: BSD-3-Clause
//
// The encoding of rows of typed tables, and only that, shared by both sides.
//
//   header.table   id of the table: table_id of its name           header.count   number of rows
//   header.flags   flag_named: rows are named by texts             header.tag     element type (table_open: none)
//
// table_open, to every shard; the key is the table's name. Payload, and reply:
//
//   u8 element tag | u8 kind of row_init | u16 0 | u32 width | f64 a | f64 b | u64 seed     32 bytes
//   plug-in \0 symbol [\0 name=value,name=value]                                           empty: rows are added to
//   reply: u64 rows with an id | u64 rows with a name
//
// rows_pull, rows_push, rows_update, rows_remove, to the shard of the rows; in a second frame above 64 KiB:
//
//   names    count * u64 id;  or, flag_named: count * u32 length | the texts | zeros up to a multiple of 8
//            or, flag_gaps, non-decreasing ids, where that is shorter: u64 first id | u32 bytes of a gap: 1, 2 or 4 |
//            u32 0 | count - 1 gaps, each from an id to the next | zeros up to a multiple of 8
//   values   count * width elements     rows_push, rows_update, and the reply of rows_pull, which is that alone;
//            with flag_f16 or flag_i8 in fewer bits (row_values.hpp), whatever the servers store
//
// With such a flag table_open is refused unless updates may be sent so: the table's function adds, is declared to be
// additive, or is an optimizer, and its elements are float or double.
//
// Ids that are used repeatedly need to be sent only once: a request whose key is the XXH3-128 of its ids makes the
// shard keep them as a list of this table, and later ones with flag_listed and that key omit the names. The reply to
// these may be unknown_set.
//
// rows_scan, to every shard: u64 cursor, initially 0. Reply: u64 next cursor | names | values (not with
// flag_keys_only), and reply_more while there is more. Rows never move: a row that exists throughout is visited once.
//
// The shard of a row: partition = top 14 bits of XXH3-64 of the 8 bytes of its id, or of its name. Everything is
// little-endian.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/row_init.hpp>
#include <paracel/detail/value.hpp>

#include "core/hash.hpp"
#include "net/protocol.hpp"

namespace paracel::net {

inline std::uint64_t hash_row(std::uint64_t id) noexcept { return XXH3_64bits(&id, sizeof id); }
inline std::uint64_t hash_row(std::string_view name) noexcept { return hash_key(name); }

/// 0 is the table of keys.
inline std::uint32_t table_id(std::string_view name) noexcept {
  const auto id = static_cast<std::uint32_t>(hash_key(name));
  return id == 0 ? 1 : id;
}

/// The definition of a table. Two of the same name must agree.
struct table_definition {
  value_tag element = value_tag::none;
  std::uint32_t width = 0;
  row_init init;
  std::string_view plugin;  ///< empty: add
  std::string_view symbol;  ///< with hyper-parameters, as in register_update
};

inline constexpr std::size_t table_front_bytes = 32;
/// Elements of a row. 2^20 doubles are 8 MB, which with the state of Adam is 24.
inline constexpr std::uint32_t most_width = 1U << 20;

inline std::vector<std::byte> encode(const table_definition& d) {
  const bool has_function = !d.plugin.empty() || !d.symbol.empty();
  std::vector<std::byte> out;
  put_fields(out, d.element, d.init.what(), std::uint16_t{0}, d.width, d.init.a(), d.init.b(), d.init.seed());
  if (!has_function) return out;
  put_bytes(out, d.plugin.data(), d.plugin.size());
  put_bytes(out, '\0');
  put_bytes(out, d.symbol.data(), d.symbol.size());
  return out;
}

/// Returns what is wrong; null if valid. The texts point into `payload`.
inline const char* decode(std::span<const std::byte> payload, table_definition& out) noexcept {
  if (payload.size() < table_front_bytes) return "the definition of a table is shorter than its front";
  std::uint8_t kind = 0;
  std::uint16_t zero = 0;
  double a = 0;
  double b = 0;
  std::uint64_t seed = 0;
  load_fields(payload.data(), out.element, kind, zero, out.width, a, b, seed);
  if (!paracel::is_known(out.element) || !is_numeric(out.element) || is_array(out.element))
    return "the elements of a table must be int32, int64, float or double";
  if (zero != 0) return "reserved bytes of the definition are not zero";
  if (out.width == 0 || out.width > most_width) return "a row must have 1 to 1048576 elements";
  constexpr auto greatest = std::numeric_limits<double>::max();
  if (!(a >= -greatest && a <= greatest && b >= -greatest && b <= greatest))
    return "the parameters of an initialiser must be finite";
  const bool whole = out.element == value_tag::i32 || out.element == value_tag::i64;
  switch (static_cast<row_init::kind>(kind)) {
    case row_init::kind::zeros:
      out.init = row_init::zeros();
      break;
    case row_init::kind::constant:
      if (whole && (a < -0x1.0p31 || a >= 0x1.0p31)) return "a constant is out of the range of int32";
      out.init = row_init::constant(a);
      break;
    case row_init::kind::uniform:
      out.init = row_init::uniform(a, b, seed);
      break;
    case row_init::kind::normal:
      out.init = row_init::normal(a, b, seed);
      break;
    default:
      return "unknown initialiser of rows";
  }
  if (whole && kind > static_cast<std::uint8_t>(row_init::kind::constant))
    return "rows of integers must be initialised to zeros or to a constant";
  const auto text = text_of(payload.subspan(table_front_bytes));
  const auto cut = text.find('\0');
  if (!text.empty() && cut == std::string_view::npos)
    return "the optimizer of a table must be given as a plug-in and a symbol";
  out.plugin = text.empty() ? text : text.substr(0, cut);
  out.symbol = text.empty() ? text : text.substr(cut + 1);
  return nullptr;
}

/// Rows of a payload; the views point into it.
struct rows_view {
  std::uint32_t count = 0;
  const std::byte* ids = nullptr;      ///< without flag_named
  const std::byte* lengths = nullptr;  ///< with it
  std::string_view texts;
  std::span<const std::byte> values;  ///< empty when none were requested

  [[nodiscard]] std::uint64_t id(std::size_t i) const noexcept {
    return load_field<std::uint64_t>(ids + i * sizeof(std::uint64_t));
  }
  [[nodiscard]] std::uint32_t length(std::size_t i) const noexcept {
    return load_field<std::uint32_t>(lengths + i * sizeof(std::uint32_t));
  }
};

/// `count` rows of `row_bytes` each (0: names only). Returns what is wrong; null if valid.
/// Cost: O(1) for ids, O(count) for names; no allocation.
inline const char* decode(std::span<const std::byte> payload, std::uint32_t count, bool named, std::size_t row_bytes,
                          rows_view& out) noexcept {
  out = {};
  const std::size_t front = named ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
  if (count > payload.size() / (front + row_bytes)) return "more rows announced than the payload can hold";
  out.count = count;
  std::size_t at = count * front;
  if (named) {
    out.lengths = payload.data();
    std::size_t texts = 0;
    const auto room = payload.size() - at;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto length = out.length(i);
      if (length > max_key_bytes || length > room - texts) return "a row's name is longer than the payload or 65535";
      texts += length;
    }
    out.texts = text_of(payload.subspan(at, texts));
    at += texts;
    for (; at % 8 != 0; ++at) {
      if (at >= payload.size() || payload[at] != std::byte{0}) return "names of rows must be padded with zeros";
    }
  } else {
    out.ids = payload.data();
  }
  if (payload.size() - at != count * row_bytes) return "the values of the rows do not fit the payload";
  out.values = payload.subspan(at);
  return nullptr;
}

// ---- ids as gaps -------------------------------------------------------------------------------------------------

inline constexpr std::size_t gaps_front_bytes = 16;

/// Bytes of the names of `count` rows, at least one.
constexpr std::size_t gaps_bytes(std::size_t count, std::size_t bytes) noexcept {
  return gaps_front_bytes + ((count - 1) * bytes + 7) / 8 * 8;
}

/// The bytes that hold each gap between the ids id(0), id(1), ...; 0: they decrease somewhere, or gaps are no shorter.
/// Cost: under a nanosecond per id; of 64 ids only if the first ones are not in order.
template <class F>
std::size_t width_of_gaps(std::size_t count, F&& id) noexcept {
  constexpr std::size_t at_once = 64;
  std::uint64_t bits = 0;  // of all gaps; a decrease wraps around to a large one
  for (std::size_t k = 1; k < count && bits >> 32 == 0;) {
    for (const auto end = std::min(count, k + at_once); k < end; ++k) bits |= id(k) - id(k - 1);
  }
  // A decrease from the greatest ids to the least looks like a small gap, but then the last id is below the first.
  if (count == 0 || bits >> 32 != 0 || id(count - 1) < id(0)) return 0;
  const std::size_t bytes = bits >> 16 != 0 ? 4 : bits >> 8 != 0 ? 2 : 1;
  return gaps_bytes(count, bytes) < count * sizeof(std::uint64_t) ? bytes : 0;
}

/// Writes gaps_bytes(count, bytes) to `to`; `bytes` is their width.
template <class F>
void write_gaps(std::byte* to, std::size_t count, std::size_t bytes, F&& id) noexcept {
  store_fields(to, std::uint64_t{id(0)}, static_cast<std::uint32_t>(bytes), std::uint32_t{0});
  const auto write = [&]<class Gap>(Gap) {
    auto* at = to + gaps_front_bytes;
    for (std::size_t k = 1; k < count; ++k, at += sizeof(Gap)) {
      const auto gap = static_cast<Gap>(id(k) - id(k - 1));
      std::memcpy(at, &gap, sizeof gap);
    }
    std::fill(at, to + gaps_bytes(count, bytes), std::byte{0});
  };
  if (bytes == 1) write(std::uint8_t{});
  else if (bytes == 2) write(std::uint16_t{});
  else write(std::uint32_t{});
}

/// `count` rows of `row_bytes` each, whose ids are encoded as gaps and decoded into `ids`, to which `out` points.
/// Returns what is wrong; null if valid. Cost: O(count); memory of at most 8 times the payload.
inline const char* decode_gaps(std::span<const std::byte> payload, std::uint32_t count, std::size_t row_bytes,
                               std::vector<std::uint64_t>& ids, rows_view& out) {
  out = {};
  if (count == 0 || payload.size() < gaps_front_bytes)
    return "ids sent as gaps must begin with an id and the width of the gaps";
  std::uint64_t id = 0;
  std::uint32_t bytes = 0;
  std::uint32_t zero = 0;
  load_fields(payload.data(), id, bytes, zero);
  if ((bytes != 1 && bytes != 2 && bytes != 4) || zero != 0) return "the gaps between ids must have 1, 2 or 4 bytes";
  if (count - 1 > payload.size() / bytes) return "more rows announced than the payload can hold";
  const auto names = gaps_bytes(count, bytes);
  if (names > payload.size() || payload.size() - names != count * row_bytes)
    return "the values of the rows do not fit the payload";
  const auto* at = payload.data() + gaps_front_bytes;
  for (auto k = gaps_front_bytes + std::size_t{count - 1} * bytes; k < names; ++k) {
    if (payload[k] != std::byte{0}) return "gaps between ids must be padded with zeros";
  }
  ids.resize(count);
  const auto first = id;
  const auto read = [&]<class Gap>(Gap) {
    ids[0] = id;
    for (std::uint32_t k = 1; k < count; ++k, at += sizeof(Gap)) ids[k] = id += load_field<Gap>(at);
  };
  if (bytes == 1) read(std::uint8_t{});
  else if (bytes == 2) read(std::uint16_t{});
  else read(std::uint32_t{});
  // The sum of 2^32 gaps below 2^32 wraps around at most once.
  if (id < first) return "ids as gaps exceed 64 bits";
  out.count = count;
  out.ids = std::as_bytes(std::span(ids)).data();
  out.values = payload.subspan(names);
  return nullptr;
}

/// The values alone, of rows that are named elsewhere. Returns what is wrong; null if valid.
inline const char* decode_values(std::span<const std::byte> payload, std::uint32_t count, std::size_t row_bytes,
                                 rows_view& out) noexcept {
  out = {};
  if (payload.size() != count * row_bytes) return "the values of the rows do not fit the payload";
  out.count = count;
  out.values = payload;
  return nullptr;
}

/// Bytes of the names of rows whose texts have `text_bytes` in total.
constexpr std::size_t names_bytes(std::size_t count, std::size_t text_bytes) noexcept {
  return (count * sizeof(std::uint32_t) + text_bytes + 7) / 8 * 8;
}

}  // namespace paracel::net
