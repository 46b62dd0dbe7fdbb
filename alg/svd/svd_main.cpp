// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "svd.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::svd>(argc, argv); }
