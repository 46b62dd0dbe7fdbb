// SPDX-License-Identifier: BSD-3-Clause
//
// How the servers apply a worker's delta: theta += delta.
#include <cstddef>
#include <span>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result lr_theta_update;
}

namespace {

void add(std::span<double> theta, std::span<const double> delta) noexcept {
  for (std::size_t i = 0; i < theta.size(); ++i) theta[i] += delta[i];
}

}  // namespace

paracel::update_result lr_theta_update = paracel::additive(paracel::update_in_place<double>(add));
