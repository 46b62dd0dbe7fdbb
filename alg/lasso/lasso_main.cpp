// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lasso.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::lasso_settings>(argc, argv, paracel::alg::lasso_schema(), [](const auto& settings) {
    paracel::alg::lasso(paracel::Comm(), "", settings).solve();
  });
}
