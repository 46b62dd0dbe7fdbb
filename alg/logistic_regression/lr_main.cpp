// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "lr.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::lr_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::logistic_regression(paracel::Comm(), server_info, paracel::alg::lr_settings(config)).solve();
  });
}
