// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "mvv.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::mvv_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::max_vertex_value(paracel::Comm(), server_info, paracel::alg::mvv_settings(config)).solve();
  });
}
