// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "lr_l1.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::lr_l1_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::lr_l1(paracel::Comm(), server_info, paracel::alg::lr_l1_settings(config)).solve();
  });
}
