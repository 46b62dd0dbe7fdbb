// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mvv.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::mvv_pregel_schema();
  return paracel::run<paracel::alg::mvv_pregel_settings>(argc, argv, schema, [](const auto& settings) {
    paracel::alg::max_vertex_value_pregel(paracel::Comm(), "", settings).solve();
  });
}
