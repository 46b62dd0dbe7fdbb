// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "steady_state_inversion.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::steady_schema(),
                                   [](const auto& config, const auto& server_info) {
    paracel::alg::steady_state_inversion(paracel::Comm(), server_info, paracel::alg::steady_settings(config)).solve();
  });
}
