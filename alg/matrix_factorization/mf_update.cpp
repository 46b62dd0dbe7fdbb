// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for mf: counts, factors and biases are added.
#include <cstdint>

#include <paracel/add.hpp>
#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result cnt_updater;
extern paracel::update_result mf_fac_updater;
extern paracel::update_result mf_bias_updater;
}

using paracel::add_elements;

paracel::update_result cnt_updater = paracel::additive(paracel::update_in_place<std::int32_t>(add_elements()));
paracel::update_result mf_fac_updater = paracel::additive(paracel::update_in_place<double>(add_elements()));
paracel::update_result mf_bias_updater = paracel::additive(paracel::update_in_place<double>(add_elements()));
