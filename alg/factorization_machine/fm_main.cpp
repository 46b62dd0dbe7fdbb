// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "fm.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::fm_settings>(argc, argv, paracel::alg::fm_schema(), [](const auto& settings) {
    paracel::alg::factorization_machine(paracel::Comm(), "", settings).solve();
  });
}
