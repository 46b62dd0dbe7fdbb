// SPDX-License-Identifier: BSD-3-Clause
//
// The entries of a `replicate` message as bytes; they are drawn in replication_chain.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/detail/bytes.hpp>

namespace paracel::srv {

enum class entry_kind : std::uint16_t { changes = 0, whole_state = 1, question = 2, more_state = 3 };

/// What replicas receive of a partition.
struct replication_entry {
  std::uint16_t partition = 0;
  entry_kind what = entry_kind::changes;
  std::uint32_t after = 0;  ///< parts of the whole state that follow this one
  std::uint64_t previous = 0;
  std::uint64_t index = 0;
  std::span<const std::byte> records{};
};

inline void append(std::vector<std::byte>& out, const replication_entry& e) {
  put_fields(out, e.partition, e.what, e.after, std::uint64_t{e.records.size()}, e.previous, e.index);
  put_bytes(out, e.records.data(), e.records.size());
}

/// Takes an entry off the front of `rest`. Returns: false when it is malformed; both are unspecified then.
[[nodiscard]] inline bool take_entry(std::span<const std::byte>& rest, replication_entry& out) noexcept {
  std::uint64_t size = 0;
  if (!take_fields(rest, out.partition, out.what, out.after, size, out.previous, out.index)) return false;
  if (size > rest.size()) return false;
  out.records = rest.first(static_cast<std::size_t>(size));
  rest = rest.subspan(out.records.size());
  const bool in_parts = out.what == entry_kind::whole_state || out.what == entry_kind::more_state;
  return out.what <= entry_kind::more_state && (out.after == 0 || in_parts);
}

}  // namespace paracel::srv
