// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "als.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::alternating_least_squares>(argc, argv); }
