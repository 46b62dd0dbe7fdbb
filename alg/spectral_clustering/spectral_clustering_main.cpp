// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "spectral_clustering.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::spectral_clustering_schema();
  return paracel::run<paracel::alg::spectral_clustering_settings>(argc, argv, schema, [](const auto& settings) {
    paracel::alg::spectral_clustering(paracel::Comm(), "", settings).solve();
  });
}
