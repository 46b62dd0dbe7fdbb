// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "kmeans.hpp"

int main(int argc, char** argv) {
  return paracel::run(argc, argv, paracel::alg::kmeans_schema(), [](const auto& config) {
    paracel::alg::kmeans(paracel::Comm(), "", paracel::alg::kmeans_settings(config)).solve();
  });
}
