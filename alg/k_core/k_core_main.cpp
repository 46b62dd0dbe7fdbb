// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "k_core.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::k_core_schema();
  return paracel::alg::run_program(argc, argv, schema, [](const auto& config, const auto& server_info) {
    paracel::alg::k_core_numbers(paracel::Comm(), server_info, paracel::alg::k_core_settings(config)).solve();
  });
}
