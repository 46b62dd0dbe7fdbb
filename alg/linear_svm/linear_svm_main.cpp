// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "linear_svm.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::linear_svm_settings>(
      argc, argv, paracel::alg::linear_svm_schema(),
      [](const auto& settings) { paracel::alg::linear_svm(paracel::Comm(), "", settings).solve(); });
}
