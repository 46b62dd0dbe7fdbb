// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "word2vec.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::word2vec>(argc, argv); }
