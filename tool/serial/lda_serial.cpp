// SPDX-License-Identifier: BSD-3-Clause
//
// Serial lda: one process, no framework; computes the conditional distribution over all topics for every
// token.
//
//     lda_serial FILE [--topics K] [--alpha A] [--beta B] [--sweeps N] [--seed S] [--stride N]
//
// FILE: libsvm, label index:count ...; document i is a test document if i % stride = stride - 1 (10; 0: none).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  try {
    std::string file;
    std::size_t K = 20, sweeps = 200, stride = 10;
    double alpha = 0.1, beta = 0.01;
    unsigned long long seed = 0;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0) {
        file = name;
        continue;
      }
      if (++i == argc) throw std::runtime_error("no value after " + name);
      const char* value = argv[i];
      if (name == "--topics") K = std::strtoul(value, nullptr, 10);
      else if (name == "--sweeps") sweeps = std::strtoul(value, nullptr, 10);
      else if (name == "--stride") stride = std::strtoul(value, nullptr, 10);
      else if (name == "--seed") seed = std::strtoull(value, nullptr, 10);
      else if (name == "--alpha") alpha = std::atof(value);
      else if (name == "--beta") beta = std::atof(value);
      else throw std::runtime_error("unknown option " + name);
    }
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    std::vector<std::vector<std::uint32_t>> training, test;
    std::size_t V = 0;
    std::size_t number = 0;
    for (std::string line; std::getline(in, line);) {
      std::vector<std::uint32_t> words;
      char* at = line.data();
      std::strtoul(at, &at, 10);
      while (*at != '\0') {
        const auto index = std::strtoul(at, &at, 10);
        if (*at != ':') break;
        const auto count = std::strtoul(at + 1, &at, 10);
        words.insert(words.end(), count, static_cast<std::uint32_t>(index - 1));
        V = std::max<std::size_t>(V, index);
      }
      (stride > 0 && number++ % stride == stride - 1 ? test : training).push_back(std::move(words));
    }

    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<std::int32_t> word_topic(V * K), document_topic(training.size() * K);
    std::vector<double> total(K);
    std::vector<std::vector<std::uint32_t>> topic(training.size());
    std::size_t tokens = 0;
    for (std::size_t d = 0; d < training.size(); ++d) {
      for (const auto w : training[d]) {
        const auto k = static_cast<std::uint32_t>(random() % K);
        topic[d].push_back(k);
        ++word_topic[w * K + k];
        ++document_topic[d * K + k];
        total[k] += 1;
        ++tokens;
      }
    }
    std::vector<double> sums(K);
    const double vb = static_cast<double>(V) * beta;
    for (std::size_t sweep = 0; sweep < sweeps; ++sweep) {
      for (std::size_t d = 0; d < training.size(); ++d) {
        auto* const nd = &document_topic[d * K];
        for (std::size_t i = 0; i < training[d].size(); ++i) {
          auto* const nw = &word_topic[training[d][i] * K];
          auto& z = topic[d][i];
          --nd[z];
          --nw[z];
          total[z] -= 1;
          double sum = 0;
          for (std::size_t k = 0; k < K; ++k) {
            sum += (nd[k] + alpha) * (nw[k] + beta) / (total[k] + vb);
            sums[k] = sum;
          }
          const double u = uniform(random) * sum;
          z = 0;
          while (z + 1 < K && sums[z] <= u) ++z;
          ++nd[z];
          ++nw[z];
          total[z] += 1;
        }
      }
    }

    double logs = 0, scored = 0;
    std::vector<double> theta(K), next(K);
    const auto phi = [&](std::size_t k, std::uint32_t w) { return (word_topic[w * K + k] + beta) / (total[k] + vb); };
    for (const auto& words : test) {
      std::fill(theta.begin(), theta.end(), 1 / static_cast<double>(K));
      for (int step = 0; step < 100; ++step) {
        std::fill(next.begin(), next.end(), alpha);
        for (std::size_t i = 0; i < words.size(); i += 2) {
          double sum = 0;
          for (std::size_t k = 0; k < K; ++k) sum += theta[k] * phi(k, words[i]);
          for (std::size_t k = 0; k < K; ++k) next[k] += theta[k] * phi(k, words[i]) / sum;
        }
        double sum = 0;
        for (const auto v : next) sum += v;
        for (std::size_t k = 0; k < K; ++k) theta[k] = next[k] / sum;
      }
      for (std::size_t i = 1; i < words.size(); i += 2) {
        double p = 0;
        for (std::size_t k = 0; k < K; ++k) p += theta[k] * phi(k, words[i]);
        logs += std::log(p);
        scored += 1;
      }
    }
    std::printf("documents %zu\ntokens %zu\nwords %zu\n", training.size(), tokens, V);
    if (scored > 0) std::printf("test_tokens %.0f\nperplexity %.10g\n", scored, std::exp(-logs / scored));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lda_serial: error: %s\n", e.what());
    return 1;
  }
}
