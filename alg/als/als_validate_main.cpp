// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "als_validate.hpp"

int main(int argc, char** argv) { return paracel::run<paracel::alg::als_validate>(argc, argv); }
