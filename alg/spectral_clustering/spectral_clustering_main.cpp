// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "spectral_clustering.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::spectral_clustering>(argc, argv); }
