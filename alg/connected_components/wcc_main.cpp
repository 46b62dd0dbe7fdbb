// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "wcc.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::wcc_schema(), [](const auto& config) {
    paracel::alg::connected_components(paracel::Comm(), "", paracel::alg::wcc_settings(config)).solve();
  });
}
