// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "linear_svr.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::linear_svr_settings>(
      argc, argv, paracel::alg::linear_svr_schema(),
      [](const auto& settings) { paracel::alg::linear_svr(paracel::Comm(), "", settings).solve(); });
}
