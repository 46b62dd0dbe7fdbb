// SPDX-License-Identifier: BSD-3-Clause
//
// The state of a partition as bytes: what is sent along the replication chain, what transfers a whole partition to a
// new replica, and what a checkpoint holds. It is a sequence of records; applied in order to an empty partition they
// reproduce it. All numbers are little-endian.
//
//     record   u8 kind | u8 tag | u16 flags | u32 key_bytes | u64 a | u32 value_bytes | u32 state_bytes | key | value
//              | state
//
//     put          key, tag, value; a = version; state = an optimizer's state. Clears a `broken` mark
//     erase        key, with its staged updates
//     clear        the whole partition: keys, rows, staged updates; not the `applied` records
//     stage        key, tag, value = the delta; state = staged_front
//     folded       key: its staged updates before clock `a` are done; their result follows
//     table        a = id, key = name, value = definition (net/row_codec.hpp)
//     row          a = table; key = id of 8 bytes, or with record_named a name; value = the row without its front
//     row_erase    a = table; key
//     row_stage    a = table; value = rows of this partition as in rows_update; state = staged_front; record_named
//     row_folded   a = table; value = u32 clock
//     applied      a = sequence; value = the answers as reply items; state = u64 client | u64 its low watermark
//     clock        value = the state of the job's clock (clock_service); in its reserved partition alone
//     broken       key, value = u16 status and why: a staged update could not be folded. record_of_table: a = table,
//                  no key
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paracel::srv {

enum class record_kind : std::uint8_t {
  put = 1,
  erase = 2,
  clear = 3,
  stage = 4,
  folded = 5,
  table = 6,
  row = 7,
  row_erase = 8,
  row_stage = 9,
  row_folded = 10,
  applied = 11,
  broken = 12,
  clock = 13,
};

inline constexpr std::uint16_t record_named = 1;            ///< rows: by name and not by id
inline constexpr std::uint16_t record_of_table = 2;         ///< broken: of a table and not of a key
inline constexpr std::uint16_t record_values_left_out = 4;  ///< applied: the values were too large to be kept
/// An answer that is remembered in this server alone: its one item stands for as many as its version says.
inline constexpr std::uint16_t record_alike = 8;

inline constexpr std::size_t record_front_bytes = 24;
/// Versions that a record may carry; the rest is reserved for later ones.
inline constexpr std::uint64_t most_version = std::uint64_t{1} << 62;

struct record {
  record_kind kind = record_kind::put;
  std::uint8_t tag = 0;
  std::uint16_t flags = 0;
  std::uint64_t a = 0;
  std::span<const std::byte> key{};
  std::span<const std::byte> value{};
  std::span<const std::byte> state{};
};

/// Header of an update or a batch of rows that waits for the clock:
/// u32 clock | u32 rank | u64 arrival | u8 verb | u8 zero | u16 flags of the request | u32 rows | u64 function
struct staged_front {
  static constexpr std::size_t bytes = 32;
  std::uint32_t clock = 0;
  std::uint32_t rank = 0;
  std::uint64_t arrival = 0;  ///< order among those of one clock and rank
  std::uint8_t what = 0;
  std::uint16_t flags = 0;
  std::uint32_t count = 0;     ///< rows of a batch; 0 for an update of a key
  std::uint64_t function = 0;  ///< content hash; 0: addition to rows
};

/// Throws: error when one of the parts has 4 GiB or more; nothing is appended.
void append(std::vector<std::byte>& out, const record& r);
/// The same with a state of this kind.
void append(std::vector<std::byte>& out, record r, const staged_front& front);
/// False: malformed.
[[nodiscard]] bool read(std::span<const std::byte> bytes, staged_front& out) noexcept;

/// Iterates over records; stops at the first malformed one. Their bytes stay in place.
/// Cost: O(1) a record, no allocation; no length is trusted beyond the available bytes.
class records {
 public:
  explicit records(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}
  /// The next one; false at the end, or when the rest is malformed (`ok` tells which).
  bool next(record& out) noexcept;
  [[nodiscard]] bool ok() const noexcept { return !bad_ && rest_.empty(); }
  /// The bytes after the last one.
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return rest_; }

 private:
  std::span<const std::byte> rest_;
  bool bad_ = false;
};

/// Whether the bytes consist of whole records.
[[nodiscard]] inline bool are_records(std::span<const std::byte> bytes) noexcept {
  records cursor(bytes);
  for (record r; cursor.next(r);) {
  }
  return cursor.ok();
}

}  // namespace paracel::srv
