// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lasso.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::lasso>(argc, argv); }
