// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "mvv.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::max_vertex_value>(argc, argv); }
