// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "sim_sparse.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return run_program(argc, argv, sim_sparse_schema(), [](const auto& config, const auto& server_info) {
    sim_sparse(paracel::Comm(), server_info, sim_sparse_settings(config)).solve();
  });
}
