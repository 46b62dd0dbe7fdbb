// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for mf: counts, factors and biases are added.
#include <cstddef>
#include <cstdint>
#include <span>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result cnt_updater;
extern paracel::update_result mf_fac_updater;
extern paracel::update_result mf_bias_updater;
}

namespace {

void add(std::span<double> value, std::span<const double> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] += delta[i];
}
void add_counts(std::span<std::int32_t> value, std::span<const std::int32_t> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i)
    value[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(value[i]) + static_cast<std::uint32_t>(delta[i]));
}

}  // namespace

paracel::update_result cnt_updater = paracel::additive(paracel::update_in_place<std::int32_t>(add_counts));
paracel::update_result mf_fac_updater = paracel::additive(paracel::update_in_place<double>(add));
paracel::update_result mf_bias_updater = paracel::additive(paracel::update_in_place<double>(add));
