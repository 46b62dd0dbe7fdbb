// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mvv.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::mvv_schema(), [](const auto& config) {
    paracel::alg::max_vertex_value(paracel::Comm(), "", paracel::alg::mvv_settings(config)).solve();
  });
}
