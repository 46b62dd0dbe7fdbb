// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in in the style of Paracel 0.3.
#include "paracel_types.hpp"
#include "proxy.hpp"

using std::vector;

extern "C" {
extern paracel::update_result theta_step;
}

static vector<double> step(vector<double> theta, vector<double> delta) {
  for (size_t i = 0; i < theta.size(); ++i) theta[i] += delta[i];
  return theta;
}

paracel::update_result theta_step = paracel::update_proxy(step);
