// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "gbdt.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<gbdt_settings>(argc, argv, gbdt_schema(),
                                     [](const auto& settings) { gbdt(paracel::Comm(), "", settings).solve(); });
}
