// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "dtr.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::decision_tree_rec>(argc, argv); }
