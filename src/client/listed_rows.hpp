// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/hash.hpp"

namespace paracel {

/// A list of row ids split by shard; a shard that has been sent its part knows it by the digest.
/// Thread-safety: none; owned by the thread of its table's client.
struct listed_rows {
  /// The rows of one request.
  struct part {
    std::uint32_t channel;
    std::uint32_t first;
    std::uint32_t count;
    digest128 digest{};
    bool is_known = false;  ///< the shard has been sent the ids
  };
  std::uint32_t epoch = 0;
  bool is_unique = false;            ///< no id occurs twice
  std::vector<std::uint64_t> ids;    ///< in the caller's order
  std::vector<std::uint64_t> sent;   ///< part by part; empty: as `ids`
  std::vector<std::uint32_t> order;  ///< indices of `sent` in `ids`; empty: the same
  std::vector<part> parts;

  [[nodiscard]] std::span<const std::uint64_t> ids_of(const part& p) const noexcept {
    return std::span(sent.empty() ? ids : sent).subspan(p.first, p.count);
  }
};

}  // namespace paracel
