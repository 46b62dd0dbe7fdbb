// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>
#include "als.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::als_settings>(argc, argv, paracel::alg::als_schema(), [](const auto& settings) {
    paracel::alg::alternating_least_squares(paracel::Comm(), "", settings).solve();
  });
}
