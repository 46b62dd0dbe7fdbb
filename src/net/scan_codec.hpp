// SPDX-License-Identifier: BSD-3-Clause
//
// Payloads of the requests that scan a shard (scan, top_k, reduce, remove_if), drawn in README.md. The server keeps no
// cursor state: a request says where to begin, its reply how far it got (`reply_more`: continue from there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/protocol.hpp"

namespace paracel::net {

/// A place in a shard: the first partition that is not finished, and in it the first remaining value of the low 16 bits
/// of a key's hash. These bits stay with a key when its table grows or others are removed, so the place is valid at any
/// later time.
struct scan_cursor {
  std::uint32_t partition = 0;
  std::uint32_t position = 0;
  bool operator==(const scan_cursor&) const = default;
};
inline constexpr std::size_t scan_cursor_bytes = 8;
inline constexpr std::uint32_t scan_positions = 0x10000;
inline constexpr std::uint32_t most_histogram_bins = 0x10000;

struct scan_request {
  scan_cursor from;
};
struct top_k_request {
  scan_cursor from;
  std::uint32_t k = 0;
};
struct reduce_request {
  scan_cursor from;
  std::uint32_t bins = 0;  ///< 0: no histogram
  double low = 0;          ///< edges of the histogram
  double high = 0;
};

void append(std::vector<std::byte>& payload, const scan_request& r);
void append(std::vector<std::byte>& payload, const top_k_request& r);
void append(std::vector<std::byte>& payload, const reduce_request& r);

/// Decodes a whole payload. Returns what is wrong with it, or null. Cost: O(1), no allocation.
[[nodiscard]] const char* decode(std::span<const std::byte> payload, scan_request& out) noexcept;
[[nodiscard]] const char* decode(std::span<const std::byte> payload, top_k_request& out) noexcept;
[[nodiscard]] const char* decode(std::span<const std::byte> payload, reduce_request& out) noexcept;

/// Statistics of the numbers of some keys: scalars, and the elements of arrays. Partial ones can be merged.
struct summary {
  std::uint64_t keys = 0;
  std::uint64_t numbers = 0;  ///< without NaN
  std::uint64_t skipped = 0;  ///< keys whose value is not numeric, and every NaN
  double sum = 0;             ///< with `correction`: compensated, so that the order hardly matters
  double correction = 0;
  double minimum = 0;       ///< of no numbers: +infinity
  double maximum = 0;       ///< of no numbers: -infinity
  std::uint64_t below = 0;  ///< numbers outside the edges of the histogram
  std::uint64_t above = 0;
  std::vector<std::uint64_t> bins;

  summary();
  /// Neumaier's sum: the error of each addition is accumulated and added at the end.
  void add(double x) noexcept;
  /// Throws: protocol_error when the histograms differ in size.
  void merge(const summary& other);
  [[nodiscard]] double total() const noexcept { return sum + correction; }
};
inline constexpr std::size_t summary_front_bytes = 72;

/// The cursor at the front of a reply's body, and what follows it.
struct scan_reply {
  scan_cursor next;
  std::span<const std::byte> rest;
};
struct top_k_reply {
  scan_cursor next;
  std::uint64_t skipped = 0;         ///< keys whose value is not one number
  std::span<const std::byte> items;  ///< request items
};

void append(std::vector<std::byte>& body, const scan_cursor& next);
/// Overwrites the cursor that `append` wrote at the front.
void put_cursor(std::span<std::byte> body, const scan_cursor& next) noexcept;
void append(std::vector<std::byte>& body, std::uint64_t number);
void append(std::vector<std::byte>& body, const summary& s);

[[nodiscard]] const char* decode(std::span<const std::byte> body, scan_reply& out) noexcept;
[[nodiscard]] const char* decode(std::span<const std::byte> body, top_k_reply& out) noexcept;
/// Decodes what follows the cursor in a reduce reply's body. Throws: std::bad_alloc.
[[nodiscard]] const char* decode(std::span<const std::byte> rest, summary& out);

}  // namespace paracel::net
