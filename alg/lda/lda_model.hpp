// SPDX-License-Identifier: BSD-3-Clause
//
// Computations on the counts: topics of new documents, their likelihood, and better priors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paracel::alg {

/// log of the gamma function for x > 0. std::lgamma writes the global `signgam`, which is a data race with two threads.
inline double log_gamma(double x) noexcept {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// theta of a document from its words, with fixed topics: starting from the uniform distribution, `steps` times
///
///     theta_k  proportional to  alpha_k + sum over the words of theta_k phi_kw / (theta . phi_w)
///
/// `phi(w)` points to the K probabilities of word w. Cost: O(steps * words * K)
template <class P>
std::vector<double> fold_in(std::span<const std::uint32_t> words, std::span<const double> alpha, const P& phi,
                            int steps) {
  const std::size_t topics = alpha.size();
  std::vector<double> theta(topics, 1.0 / static_cast<double>(topics));
  std::vector<double> next(topics);
  for (int step = 0; step < steps; ++step) {
    std::fill(next.begin(), next.end(), 0.0);
    for (const auto w : words) {
      const double* const p = phi(w);
      double sum = 0;
      for (std::size_t k = 0; k < topics; ++k) sum += theta[k] * p[k];
      const double share = 1 / sum;
      for (std::size_t k = 0; k < topics; ++k) next[k] += share * p[k];
    }
    double total = 0;
    for (std::size_t k = 0; k < topics; ++k) {
      next[k] = alpha[k] + theta[k] * next[k];
      total += next[k];
    }
    for (std::size_t k = 0; k < topics; ++k) theta[k] = next[k] / total;
  }
  return theta;
}

/// psi(n + a) - psi(a) for integer n. Cost: O(min(n, 32))
inline double digamma_difference(std::uint64_t n, double a) {
  const auto asymptotic = [](double x) {
    // For x >= 32 the next term is below 1e-17.
    const double r = 1 / (x * x);
    return std::log(x) - 0.5 / x - r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r / 132))));
  };
  double sum = 0;
  if (n <= 32) {
    for (std::uint64_t j = n; j > 0; --j) sum += 1 / (a + static_cast<double>(j - 1));
    return sum;
  }
  // The recurrence raises both arguments to at least 32.
  double low = a;
  for (; low < 32; low += 1) sum += 1 / low;
  double high = a + static_cast<double>(n);
  return asymptotic(high) - asymptotic(low) + sum;
}

/// How often each count occurs. Cost: 8 bytes for each value up to the greatest count.
class count_histogram {
 public:
  void add(std::uint64_t count) {
    if (count >= times_.size()) times_.resize(count + 1);
    ++times_[count];
  }
  /// Sum over the counts n of psi(n + a) - psi(a).
  [[nodiscard]] double digamma_sum(double a) const {
    double sum = 0;
    for (std::size_t n = 1; n < times_.size(); ++n) {
      if (times_[n] != 0) sum += static_cast<double>(times_[n]) * digamma_difference(n, a);
    }
    return sum;
  }
  /// Sum over the counts n of lgamma(n + a) - lgamma(a).
  [[nodiscard]] double lgamma_sum(double a) const {
    double sum = 0;
    const double none = log_gamma(a);
    for (std::size_t n = 1; n < times_.size(); ++n) {
      if (times_[n] != 0) sum += static_cast<double>(times_[n]) * (log_gamma(static_cast<double>(n) + a) - none);
    }
    return sum;
  }

 private:
  std::vector<std::uint64_t> times_;
};

/// The counts of topics in documents, as far as the topic prior depends on them.
struct document_counts {
  explicit document_counts(std::size_t topics) : of_topic(topics) {}
  std::vector<count_histogram> of_topic;
  count_histogram of_length;

  void add(std::span<const std::uint32_t> topics_of_tokens, std::vector<std::uint64_t>& work) {
    work.assign(of_topic.size(), 0);
    for (const auto k : topics_of_tokens) ++work[k];
    for (std::size_t k = 0; k < work.size(); ++k) of_topic[k].add(work[k]);
    of_length.add(topics_of_tokens.size());
  }
  /// log p(z | alpha), Dirichlet-multinomial.
  [[nodiscard]] double log_probability(std::span<const double> alpha) const {
    double total = 0;
    double sum = 0;
    for (std::size_t k = 0; k < alpha.size(); ++k) {
      total += alpha[k];
      sum += of_topic[k].lgamma_sum(alpha[k]);
    }
    return sum - of_length.lgamma_sum(total);
  }
  /// Contributions of these documents to the fixed point: K numerators and the denominator, to be summed over workers.
  [[nodiscard]] std::vector<double> minka_sums(std::span<const double> alpha) const {
    std::vector<double> sums;
    double total = 0;
    for (std::size_t k = 0; k < alpha.size(); ++k) {
      sums.push_back(of_topic[k].digamma_sum(alpha[k]));
      total += alpha[k];
    }
    sums.push_back(of_length.digamma_sum(total));
    return sums;
  }
};

/// Lower bound of a prior: otherwise a topic without tokens could never get one.
inline constexpr double least_prior = 1e-10;

/// One step of Minka's fixed point: alpha_k becomes alpha_k times numerator_k / denominator. Returns the greatest
/// relative change. Every step increases log p(z | alpha). Source: T. Minka, "Estimating a Dirichlet distribution",
/// 2000, section 3 (Dirichlet-multinomial).
inline double minka_step(std::span<double> alpha, std::span<const double> sums) {
  double change = 0;
  if (!(sums.back() > 0)) return 0;
  for (std::size_t k = 0; k < alpha.size(); ++k) {
    const double next = std::max(alpha[k] * sums[k] / sums.back(), least_prior);
    change = std::max(change, std::abs(next - alpha[k]) / alpha[k]);
    alpha[k] = next;
  }
  return change;
}

}  // namespace paracel::alg
