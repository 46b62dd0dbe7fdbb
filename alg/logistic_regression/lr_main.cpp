// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lr.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::lr_settings>(argc, argv, paracel::alg::lr_schema(), [](const auto& settings) {
    paracel::alg::logistic_regression(paracel::Comm(), "", settings).solve();
  });
}
