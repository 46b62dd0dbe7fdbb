// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mf.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::matrix_factorization>(argc, argv); }
