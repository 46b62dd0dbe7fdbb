// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's function for svd: sums over the workers.
#include <paracel/add.hpp>
#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result svd_updater;
}

paracel::update_result svd_updater = paracel::additive(paracel::update_in_place<double>(paracel::add_elements()));
