// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include "word2vec.hpp"

int main(int argc, char** argv) {
  return paracel::run<paracel::alg::word2vec_settings>(
      argc, argv, paracel::alg::word2vec_schema(),
      [](const auto& settings) { paracel::alg::word2vec(paracel::Comm(), "", settings).solve(); });
}
