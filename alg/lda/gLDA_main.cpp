// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lda.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::lda_settings>(argc, argv, paracel::alg::lda_schema(), [](const auto& settings) {
    paracel::alg::lda(paracel::Comm(), "", settings).solve();
  });
}
