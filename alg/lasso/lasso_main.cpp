// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "lasso.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::lasso_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::lasso(paracel::Comm(), server_info, paracel::alg::lasso_settings(config)).solve();
  });
}
