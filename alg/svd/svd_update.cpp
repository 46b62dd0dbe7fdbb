// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's function for svd: sums over the workers.
#include <cstddef>
#include <span>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result svd_updater;
}

namespace {

void add(std::span<double> value, std::span<const double> part) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] += part[i];
}

}  // namespace

paracel::update_result svd_updater = paracel::additive(paracel::update_in_place<double>(add));
