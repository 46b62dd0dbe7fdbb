// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "dtr.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::dtr_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::decision_tree_rec(paracel::Comm(), server_info, paracel::alg::dtr_settings(config)).solve();
  });
}
