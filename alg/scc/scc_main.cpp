// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "scc.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::scc_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::strongly_connected_components(paracel::Comm(), server_info, paracel::alg::scc_settings(config)).solve();
  });
}
