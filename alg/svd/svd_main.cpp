// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "svd.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::svd_settings>(argc, argv, paracel::alg::svd_schema(), [](const auto& settings) {
    paracel::alg::svd(paracel::Comm(), "", settings).solve();
  });
}
