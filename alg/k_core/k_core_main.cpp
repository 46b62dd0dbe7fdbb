// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "k_core.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::k_core_schema();
  return paracel::run<paracel::alg::k_core_settings>(argc, argv, schema, [](const auto& settings) {
    paracel::alg::k_core_numbers(paracel::Comm(), "", settings).solve();
  });
}
