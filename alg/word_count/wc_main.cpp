// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "wc.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::wc_schema(), [](const auto& config) {
    paracel::alg::word_count(paracel::Comm(), "", paracel::alg::wc_settings(config)).solve();
  });
}
