// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "steady_state_inversion.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::steady_state_inversion>(argc, argv); }
