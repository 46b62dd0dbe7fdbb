// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "kmeans.hpp"

int main(int argc, char** argv) {
  using namespace paracel::alg;
  return paracel::run<kmeans_settings>(argc, argv, kmeans_schema(),
                                       [](const auto& settings) { kmeans(paracel::Comm(), "", settings).solve(); });
}
