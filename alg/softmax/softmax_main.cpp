// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "softmax.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::softmax_settings>(
      argc, argv, paracel::alg::softmax_schema(),
      [](const auto& settings) { paracel::alg::softmax(paracel::Comm(), "", settings).solve(); });
}
