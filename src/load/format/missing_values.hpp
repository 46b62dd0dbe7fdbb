// SPDX-License-Identifier: BSD-3-Clause
//
// Which values of features are missing.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "paracel/samples.hpp"

namespace paracel {

/// Thread-safety: const-concurrent
class missing_values {
 public:
  explicit missing_values(const sample_options& options);

  static constexpr double value = std::numeric_limits<double>::quiet_NaN();
  /// Whether a field of CSV is missing: empty, NA, nan, NaN, null, ? or one of the options'. `field`: without blanks.
  [[nodiscard]] bool is_missing(std::string_view field) const noexcept;
  /// Whether numbers stand for missing values, too.
  [[nodiscard]] bool has_numbers() const noexcept { return !numbers_.empty(); }
  /// The number, or `value` if it stands for that.
  [[nodiscard]] double read(double v) const noexcept {
    for (const double n : numbers_) {
      if (v == n) return value;
    }
    return v;
  }

 private:
  bool allowed_;
  std::vector<std::string> words_;
  std::vector<double> numbers_;
};

}  // namespace paracel
