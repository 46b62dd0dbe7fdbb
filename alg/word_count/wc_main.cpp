// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "wc.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::wc_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::word_count(paracel::Comm(), server_info, paracel::alg::wc_settings(config)).solve();
  });
}
