// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "triangle_count.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::triangle_count_schema();
  return paracel::alg::run_program(argc, argv, schema, [](const auto& config, const auto& server_info) {
    paracel::alg::triangle_counter(paracel::Comm(), server_info, paracel::alg::triangle_settings(config)).solve();
  });
}
