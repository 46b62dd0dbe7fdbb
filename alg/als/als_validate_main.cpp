// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "als_validate.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run(argc, argv, als_validate_schema(), [](const auto& config) {
    als_validate(paracel::Comm(), "", als_validate_settings(config)).solve();
  });
}
