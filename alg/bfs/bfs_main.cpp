// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "bfs.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::bfs_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::breadth_first_search(paracel::Comm(), server_info, paracel::alg::bfs_settings(config)).solve();
  });
}
