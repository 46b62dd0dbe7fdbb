// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "pagerank.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::pagerank_schema();
  return paracel::alg::run_program(argc, argv, schema, [](const auto& config, const auto& server_info) {
    paracel::alg::pagerank(paracel::Comm(), server_info, paracel::alg::pagerank_settings(config)).solve();
  });
}
