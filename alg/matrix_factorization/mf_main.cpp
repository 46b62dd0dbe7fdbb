// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mf.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::mf_settings>(argc, argv, paracel::alg::mf_schema(), [](const auto& settings) {
    paracel::alg::matrix_factorization(paracel::Comm(), "", settings).solve();
  });
}
