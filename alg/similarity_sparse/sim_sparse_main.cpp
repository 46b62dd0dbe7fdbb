// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "sim_sparse.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<sim_sparse_settings>(
      argc, argv, sim_sparse_schema(), [](const auto& settings) { sim_sparse(paracel::Comm(), "", settings).solve(); });
}
