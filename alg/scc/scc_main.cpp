// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "scc.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::scc_settings>(argc, argv, paracel::alg::scc_schema(), [](const auto& settings) {
    paracel::alg::strongly_connected_components(paracel::Comm(), "", settings).solve();
  });
}
