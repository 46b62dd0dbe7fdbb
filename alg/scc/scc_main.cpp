// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "scc.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::strongly_connected_components>(argc, argv); }
