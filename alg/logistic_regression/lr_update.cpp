// SPDX-License-Identifier: BSD-3-Clause
//
// How the servers apply a worker's delta: theta += delta.
#include <paracel/add.hpp>
#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result lr_theta_update;
}

paracel::update_result lr_theta_update = paracel::additive(paracel::update_in_place<double>(paracel::add_elements()));
