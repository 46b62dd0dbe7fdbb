// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "sim_dense.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run(argc, argv, ab_sim_dense_schema(), [](const auto& config) {
    sim_dense(paracel::Comm(), "", sim_dense_settings(config, true)).solve();
  });
}
