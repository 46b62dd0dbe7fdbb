// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in: runs in the servers, on the value of a key, where it is.
#include <algorithm>
#include <cstddef>
#include <span>

#include <paracel/update.hpp>

static void step(std::span<double> value, std::span<const double> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = std::clamp(value[i] + delta[i], -1e6, 1e6);
}

extern "C" {
extern paracel::update_result my_algorithm_step;
}
paracel::update_result my_algorithm_step = paracel::update_in_place<double>(step);
