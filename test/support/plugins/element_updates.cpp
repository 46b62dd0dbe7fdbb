// SPDX-License-Identifier: BSD-3-Clause
//
// Update functions for elements: one that fails after changing some of them, and a sum that is not declared additive.
#include <paracel/update.hpp>

#include <cstdint>
#include <span>
#include <stdexcept>

namespace {

struct add_positive {
  void operator()(std::span<double> value, std::span<const double> delta) const {
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (delta[i] < 0) throw std::runtime_error("a negative delta");
      value[i] += delta[i];
    }
  }
};

struct plain_sum {
  void operator()(std::span<std::int64_t> value, std::span<const std::int64_t> delta) const noexcept {
    for (std::size_t i = 0; i < value.size(); ++i) value[i] += delta[i];
  }
};

}  // namespace

extern "C" {
extern paracel::update_result positive_only_update;
extern paracel::update_result plain_sum_update;
}

paracel::update_result positive_only_update = paracel::update_in_place<double>(add_positive());
paracel::update_result plain_sum_update = paracel::update_in_place<std::int64_t>(plain_sum());
