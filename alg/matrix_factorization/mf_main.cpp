// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mf.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::mf_schema(), [](const auto& config) {
    paracel::alg::matrix_factorization(paracel::Comm(), "", paracel::alg::mf_settings(config)).solve();
  });
}
