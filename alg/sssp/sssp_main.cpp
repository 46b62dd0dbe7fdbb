// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "sssp.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::single_source_shortest_paths>(argc, argv); }
