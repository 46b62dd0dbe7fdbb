// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "triangle_count.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::triangle_counter>(argc, argv); }
