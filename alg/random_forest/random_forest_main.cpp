// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "random_forest.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::random_forest>(argc, argv); }
