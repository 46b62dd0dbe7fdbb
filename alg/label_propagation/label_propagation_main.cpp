// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "label_propagation.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::label_propagation>(argc, argv); }
