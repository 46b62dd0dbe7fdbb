// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "dtr.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::dtr_schema(), [](const auto& config) {
    paracel::alg::decision_tree_rec(paracel::Comm(), "", paracel::alg::dtr_settings(config)).solve();
  });
}
