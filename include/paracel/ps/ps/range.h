// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace ps {

/// Keys or indices from begin() to before end().
class Range {
 public:
  Range() = default;
  Range(std::uint64_t begin, std::uint64_t end) : begin_(begin), end_(end) {}
  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }
  [[nodiscard]] std::uint64_t size() const { return end_ - begin_; }

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace ps
