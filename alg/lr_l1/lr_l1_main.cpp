// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lr_l1.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::lr_l1_schema(), [](const auto& config) {
    paracel::alg::lr_l1(paracel::Comm(), "", paracel::alg::lr_l1_settings(config)).solve();
  });
}
