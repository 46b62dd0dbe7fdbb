// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "wcc.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::wcc_settings>(argc, argv, paracel::alg::wcc_schema(), [](const auto& settings) {
    paracel::alg::connected_components(paracel::Comm(), "", settings).solve();
  });
}
