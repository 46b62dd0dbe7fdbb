// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "sim_dense.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return run_program(argc, argv, ab_sim_dense_schema(), [](const auto& config, const auto& server_info) {
    sim_dense(paracel::Comm(), server_info, sim_dense_settings(config, true)).solve();
  });
}
