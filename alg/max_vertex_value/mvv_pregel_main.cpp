// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "mvv.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::mvv_pregel_schema();
  return paracel::alg::run_program(argc, argv, schema, [](const auto& config, const auto& server_info) {
    paracel::alg::max_vertex_value_pregel(paracel::Comm(), server_info, paracel::alg::mvv_settings(config)).solve();
  });
}
