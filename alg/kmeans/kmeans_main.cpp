// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "kmeans.hpp"

int main(int argc, char** argv) {
  return paracel::alg::run_program(argc, argv, paracel::alg::kmeans_schema(), [](const auto& config, const auto& server_info) {
    paracel::alg::kmeans(paracel::Comm(), server_info, paracel::alg::kmeans_settings(config)).solve();
  });
}
