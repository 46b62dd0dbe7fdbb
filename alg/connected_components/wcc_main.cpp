// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "wcc.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::connected_components>(argc, argv); }
