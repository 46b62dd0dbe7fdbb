// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "wc.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::wc_settings>(argc, argv, paracel::alg::wc_schema(), [](const auto& settings) {
    paracel::alg::word_count(paracel::Comm(), "", settings).solve();
  });
}
