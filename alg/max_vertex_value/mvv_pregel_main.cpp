// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mvv.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::mvv_pregel_schema();
  return paracel::run(argc, argv, schema, [](const auto& config) {
    paracel::alg::max_vertex_value_pregel(paracel::Comm(), "", paracel::alg::mvv_settings(config)).solve();
  });
}
