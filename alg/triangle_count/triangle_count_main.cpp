// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "triangle_count.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::triangle_count_schema();
  return paracel::run<paracel::alg::triangle_settings>(argc, argv, schema, [](const auto& settings) {
    paracel::alg::triangle_counter(paracel::Comm(), "", settings).solve();
  });
}
