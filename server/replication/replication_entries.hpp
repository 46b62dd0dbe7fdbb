// SPDX-License-Identifier: BSD-3-Clause
//
// The entries of a `replicate` message as bytes; they are drawn in replication_chain.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

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

inline constexpr std::size_t chain_entry_bytes = 32;

template <class T>
void put(std::vector<std::byte>& out, T v) {
  const auto bytes = std::as_bytes(std::span(&v, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

inline void append(std::vector<std::byte>& out, const replication_entry& e) {
  put(out, e.partition);
  put(out, static_cast<std::uint16_t>(e.what));
  put(out, e.after);
  put(out, static_cast<std::uint64_t>(e.records.size()));
  put(out, e.previous);
  put(out, e.index);
  out.insert(out.end(), e.records.begin(), e.records.end());
}

/// Reads numbers from bytes of another server; reading past the end yields zero and sets `bad`.
class chain_reader {
 public:
  explicit chain_reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}
  template <class T>
  T take() noexcept {
    T v{};
    const auto from = bytes(sizeof v);
    if (!from.empty()) std::memcpy(&v, from.data(), sizeof v);
    return v;
  }
  std::span<const std::byte> bytes(std::uint64_t n) noexcept {
    if (n > rest_.size()) {
      bad_ = true;
      rest_ = {};
      return {};
    }
    const auto out = rest_.first(static_cast<std::size_t>(n));
    rest_ = rest_.subspan(out.size());
    return out;
  }
  /// The next entry; false at the end, or when the rest is malformed (`bad` tells which).
  bool next(replication_entry& out) noexcept {
    if (bad_ || rest_.empty()) return false;
    out.partition = take<std::uint16_t>();
    const auto what = take<std::uint16_t>();
    out.what = static_cast<entry_kind>(what);
    out.after = take<std::uint32_t>();
    const auto size = take<std::uint64_t>();
    out.previous = take<std::uint64_t>();
    out.index = take<std::uint64_t>();
    out.records = bytes(size);
    const bool in_parts = out.what == entry_kind::whole_state || out.what == entry_kind::more_state;
    bad_ = bad_ || what > static_cast<std::uint16_t>(entry_kind::more_state) || (out.after != 0 && !in_parts);
    return !bad_;
  }
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return rest_; }
  [[nodiscard]] bool bad() const noexcept { return bad_; }

 private:
  std::span<const std::byte> rest_;
  bool bad_ = false;
};

}  // namespace paracel::srv
