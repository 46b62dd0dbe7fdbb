// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lr.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::lr_schema(), [](const auto& config) {
    paracel::alg::logistic_regression(paracel::Comm(), "", paracel::alg::lr_settings(config)).solve();
  });
}
