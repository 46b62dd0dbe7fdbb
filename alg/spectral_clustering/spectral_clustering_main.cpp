// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/program.hpp"
#include "spectral_clustering.hpp"

int main(int argc, char** argv) {
  const auto schema = paracel::alg::spectral_clustering_schema();
  return paracel::alg::run_program(argc, argv, schema, [](const auto& config, const auto& server_info) {
    const paracel::alg::spectral_clustering_settings settings(config);
    paracel::alg::spectral_clustering(paracel::Comm(), server_info, settings).solve();
  });
}
