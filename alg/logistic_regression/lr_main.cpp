// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lr.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::logistic_regression>(argc, argv); }
