// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "wc.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::word_count>(argc, argv); }
