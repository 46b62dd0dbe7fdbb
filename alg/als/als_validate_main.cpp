// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "als_validate.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<als_validate_settings>(argc, argv, als_validate_schema(), [](const auto& settings) {
    als_validate(paracel::Comm(), "", settings).solve();
  });
}
