// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "fm.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::factorization_machine>(argc, argv); }
