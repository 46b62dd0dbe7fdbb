// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "steady_state_inversion.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::steady_settings>(argc, argv, paracel::alg::steady_schema(), [](const auto& settings) {
    paracel::alg::steady_state_inversion(paracel::Comm(), "", settings).solve();
  });
}
