// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "linear_svm.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::linear_svm>(argc, argv); }
