// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "pagerank.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::pagerank_schema();
  return paracel::run<paracel::alg::pagerank_settings>(
      argc, argv, schema, [](const auto& settings) { paracel::alg::pagerank(paracel::Comm(), "", settings).solve(); });
}
