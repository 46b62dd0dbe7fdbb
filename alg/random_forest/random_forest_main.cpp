// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "random_forest.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<random_forest_settings>(argc, argv, random_forest_schema(), [](const auto& settings) {
    random_forest(paracel::Comm(), "", settings).solve();
  });
}
