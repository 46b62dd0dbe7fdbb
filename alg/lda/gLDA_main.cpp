// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lda.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::lda_schema(), [](const auto& config) {
    paracel::alg::lda(paracel::Comm(), "", paracel::alg::lda_settings(config)).solve();
  });
}
