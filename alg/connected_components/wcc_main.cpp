// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "wcc.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::wcc_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::connected_components(paracel::Comm(), server_info, paracel::alg::wcc_settings(config)).solve();
  });
}
