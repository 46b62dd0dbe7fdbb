// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "lda.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::lda>(argc, argv); }
