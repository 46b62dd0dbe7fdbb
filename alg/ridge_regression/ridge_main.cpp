// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "ridge.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::ridge_schema(), [](const auto& config) {
    paracel::alg::ridge_regression(paracel::Comm(), "", paracel::alg::ridge_settings(config)).solve();
  });
}
