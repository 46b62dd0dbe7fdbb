// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "linear_svr.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::linear_svr>(argc, argv); }
