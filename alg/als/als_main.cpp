// SPDX-License-Identifier: BSD-3-Clause
#include "als.hpp"
#include <paracel/run.hpp>


int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::als_schema(), [](const auto& config) {
    paracel::alg::alternating_least_squares(paracel::Comm(), "", paracel::alg::als_settings(config)).solve();
  });
}
