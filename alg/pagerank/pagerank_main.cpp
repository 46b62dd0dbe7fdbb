// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "pagerank.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::pagerank_schema();
  return paracel::run(argc, argv, schema, [](const auto& config) {
    paracel::alg::pagerank(paracel::Comm(), "", paracel::alg::pagerank_settings(config)).solve();
  });
}
