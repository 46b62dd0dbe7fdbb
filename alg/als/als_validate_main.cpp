// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "als_validate.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return run_program(argc, argv, als_validate_schema(), [](const auto& config, const auto& server_info) {
    als_validate(paracel::Comm(), server_info, als_validate_settings(config)).solve();
  });
}
