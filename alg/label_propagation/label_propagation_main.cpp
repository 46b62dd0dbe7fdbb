// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "label_propagation.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::label_propagation_schema();
  return paracel::alg::run_program(argc, argv, schema, [](const auto& config, const auto& server_info) {
    paracel::alg::label_propagation(paracel::Comm(), server_info, paracel::alg::label_propagation_settings(config)).solve();
  });
}
