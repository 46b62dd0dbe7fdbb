// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "naive_bayes.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::naive_bayes>(argc, argv); }
