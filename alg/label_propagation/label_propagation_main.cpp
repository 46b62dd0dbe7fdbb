// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "label_propagation.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::label_propagation_schema();
  return paracel::run<paracel::alg::label_propagation_settings>(argc, argv, schema, [](const auto& settings) {
    paracel::alg::label_propagation(paracel::Comm(), "", settings).solve();
  });
}
