// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "bfs.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::bfs_settings>(argc, argv, paracel::alg::bfs_schema(), [](const auto& settings) {
    paracel::alg::breadth_first_search(paracel::Comm(), "", settings).solve();
  });
}
