// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "sssp.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::sssp_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::single_source_shortest_paths(paracel::Comm(), server_info, paracel::alg::sssp_settings(config)).solve();
  });
}
