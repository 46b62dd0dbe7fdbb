// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "bfs.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::breadth_first_search>(argc, argv); }
