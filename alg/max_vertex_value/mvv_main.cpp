// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mvv.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::mvv_settings>(argc, argv, paracel::alg::mvv_schema(), [](const auto& settings) {
    paracel::alg::max_vertex_value(paracel::Comm(), "", settings).solve();
  });
}
