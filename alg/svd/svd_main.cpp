// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "svd.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::svd_schema(), [](const auto& config) {
    paracel::alg::svd(paracel::Comm(), "", paracel::alg::svd_settings(config)).solve();
  });
}
