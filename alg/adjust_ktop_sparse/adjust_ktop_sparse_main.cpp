// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>
#include "adjust_ktop_sparse.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<adjust_ktop_settings>(argc, argv, adjust_ktop_schema(), [](const auto& settings) {
    adjust_ktop(paracel::Comm(), "", settings).solve();
  });
}
