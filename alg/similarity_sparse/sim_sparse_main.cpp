// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "sim_sparse.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::sim_sparse>(argc, argv); }
