// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lr_l1.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::lr_l1>(argc, argv); }
