// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "lda.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::lda_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::lda(paracel::Comm(), server_info, paracel::alg::lda_settings(config)).solve();
  });
}
