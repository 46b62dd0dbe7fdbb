// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace paracel::srv {

enum class metric_kind : std::uint8_t { counter, gauge, histogram };

struct metric_sample {
  std::vector<std::pair<std::string, std::string>> labels{};  ///< (name, value); values are UTF-8
  double value = 0;                                           ///< of a histogram: the sum of all observations
  std::vector<std::uint64_t> counts{};  ///< of a histogram: of each bucket alone; one more than there are bounds
};

/// A metric with its samples, as Prometheus has them: no two have the same labels. Names and units follow its
/// conventions: seconds, bytes, counters end in _total.
struct metric_family {
  std::string name;
  std::string help;
  metric_kind kind = metric_kind::gauge;
  std::vector<double> bounds{};  ///< of a histogram: upper bounds of the buckets, ascending, without infinity
  std::vector<metric_sample> samples{};
};

}  // namespace paracel::srv
