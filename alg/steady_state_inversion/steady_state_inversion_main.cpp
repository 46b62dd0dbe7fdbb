// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "steady_state_inversion.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<steady_settings>(argc, argv, steady_schema(), [](const auto& settings) {
    steady_state_inversion(paracel::Comm(), "", settings).solve();
  });
}
