// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "adjust_ktop_sparse.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::adjust_ktop>(argc, argv); }
