// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lasso.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::lasso_schema(), [](const auto& config) {
    paracel::alg::lasso(paracel::Comm(), "", paracel::alg::lasso_settings(config)).solve();
  });
}
