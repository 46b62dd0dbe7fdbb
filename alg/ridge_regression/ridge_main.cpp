// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "ridge.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::ridge_regression>(argc, argv); }
