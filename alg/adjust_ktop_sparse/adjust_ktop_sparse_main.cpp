// SPDX-License-Identifier: BSD-3-Clause
#include "adjust_ktop_sparse.hpp"
#include "alg/common/program.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return run_program(argc, argv, adjust_ktop_schema(), [](const auto& config, const auto& server_info) {
    adjust_ktop(paracel::Comm(), server_info, adjust_ktop_settings(config)).solve();
  });
}
