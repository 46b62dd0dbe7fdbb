// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paracel {

/// A 64-bit id as 16 lower-case hex digits: the form of ids in JSON, where integers are exact up to 2^53.
inline std::string to_hex(std::uint64_t id) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; id >>= 4) text[i] = "0123456789abcdef"[id & 15U];
  return text;
}

/// The id written as exactly 16 hex digits, nothing else.
inline std::optional<std::uint64_t> from_hex(std::string_view text) noexcept {
  std::uint64_t id = 0;
  if (text.size() != 16) return std::nullopt;
  const auto* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, id, 16);
  if (failed != std::errc{} || stop != end) return std::nullopt;
  return id;
}

}  // namespace paracel
