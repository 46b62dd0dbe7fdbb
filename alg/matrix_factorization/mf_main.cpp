// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "mf.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::mf_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::matrix_factorization(paracel::Comm(), server_info, paracel::alg::mf_settings(config)).solve();
  });
}
