// SPDX-License-Identifier: BSD-3-Clause
#include "als.hpp"
#include "alg/common/program.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::als_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::alternating_least_squares(paracel::Comm(), server_info, paracel::alg::als_settings(config)).solve();
  });
}
