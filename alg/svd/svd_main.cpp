// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "svd.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::svd_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::svd(paracel::Comm(), server_info, paracel::alg::svd_settings(config)).solve();
  });
}
