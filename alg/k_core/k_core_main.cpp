// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "k_core.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::k_core_numbers>(argc, argv); }
