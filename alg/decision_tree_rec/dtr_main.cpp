// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "dtr.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::dtr_settings>(argc, argv, paracel::alg::dtr_schema(), [](const auto& settings) {
    paracel::alg::decision_tree_rec(paracel::Comm(), "", settings).solve();
  });
}
