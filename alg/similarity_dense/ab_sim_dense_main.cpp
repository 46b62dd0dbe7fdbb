// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "sim_dense.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::ab_sim_dense>(argc, argv); }
