// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "ridge.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::ridge_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::ridge_regression(paracel::Comm(), server_info, paracel::alg::ridge_settings(config)).solve();
  });
}
