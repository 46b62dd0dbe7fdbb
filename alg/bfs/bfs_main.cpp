// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "bfs.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::bfs_schema(), [](const auto& config) {
    paracel::alg::breadth_first_search(paracel::Comm(), "", paracel::alg::bfs_settings(config)).solve();
  });
}
