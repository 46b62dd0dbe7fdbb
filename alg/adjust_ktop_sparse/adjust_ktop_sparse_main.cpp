// SPDX-License-Identifier: BSD-3-Clause
#include "adjust_ktop_sparse.hpp"
#include <paracel/run.hpp>


int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run(argc, argv, adjust_ktop_schema(), [](const auto& config) {
    adjust_ktop(paracel::Comm(), "", adjust_ktop_settings(config)).solve();
  });
}
