// SPDX-License-Identifier: BSD-3-Clause
//
// Variational inference of topics. Given lambda, the Dirichlet parameters of the topics' words, a document with n_w
// tokens of word w has the parameters gamma that solve
//
//     gamma_k = alpha + sum_w n_w p_wk        p_wk proportional to exp(E[log theta_k] + E[log beta_kw])
//
// where E[log theta_k] = psi(gamma_k) - psi(sum gamma) and E[log beta_kw] = psi(lambda_kw) - psi(sum_w lambda_kw).
//
// psi(x) = log(growth) - shift, with growth = exp(psi(x + 10)) and shift = 1/x + ... + 1/(x + 9). So exp(psi(x)) needs
// no logarithm. It underflows for x below 1e-3, which priors may be; but p_wk depends only on ratios between topics, so
// the least shift of a row can be left out.
//
// Source: M. Hoffman, D. Blei, F. Bach, "Online learning for latent Dirichlet allocation", NIPS 2010, algorithm 1 and
// equation 1 (the bound).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paracel::alg {

/// psi(x) = log(growth) - shift.
struct digamma_parts {
  double growth;
  double shift;
};

/// For 0 < x < 1e30. The relative error of growth and of shift is a few 1e-16. Cost: two divisions.
[[gnu::always_inline]] inline digamma_parts digamma_parts_of(double x) noexcept {
  // 1/(x + i) + 1/(x + 9 - i) = (2 x + 9) / (q + i (9 - i)).
  const double q = x * (x + 9);
  const double ab = q * (q + 8);
  const double cd = (q + 14) * (q + 18);
  const double e = q + 20;
  const double sum = ((2 * q + 8) * cd + (2 * q + 32) * ab) * e + ab * cd;
  // exp(psi(z + 1/2)) in powers of 1/z; at z = 9.5 the next term is 1e-16.
  const double z = x + 9.5;
  const double r = 1 / (z * z);
  const double series =
      1 + r * (1.0 / 24 + r * (-37.0 / 5760 + r * (10313.0 / 2903040 +
                                                   r * (-0.0039535574489730305 +
                                                        r * (0.007365033269308669 +
                                                             r * (-0.020734675824368137 + r * 0.08238185223878776))))));
  return {z * series, (2 * x + 9) * sum / (ab * cd * e)};
}

/// The derivative of log gamma, for 0 < x < 1e30.
inline double digamma(double x) noexcept {
  const auto p = digamma_parts_of(x);
  return std::log(p.growth) - p.shift;
}

/// Documents as distinct words and their counts. Words are indices into a list kept by the owner.
struct lda_bags {
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint32_t> word;
  std::vector<double> count;
  std::vector<std::uint64_t> number;  ///< global number of each document

  [[nodiscard]] std::size_t size() const noexcept { return number.size(); }
  [[nodiscard]] std::size_t length(std::size_t d) const { return begin[d + 1] - begin[d]; }
};

/// Infers the topics of one document at a time, with fixed lambda.
/// Thread-safety: none. Memory: 8 K bytes for each word of set_topics, and for each word of the longest document.
class topic_inference {
 public:
  /// The fixed point ends when the mean change of gamma is less than `tolerance`, or after `steps` steps.
  topic_inference(std::size_t topics, double alpha, int steps, double tolerance);

  /// Shape: `lambda` K numbers a word, `totals` its K sums over all words. Cost: O(words K)
  void set_topics(std::span<const double> lambda, std::span<const double> totals);

  /// Finds gamma of document d, whose words are indices into the rows of set_topics, starting from gamma = 1.
  /// Cost: O(steps K (distinct words + 1))
  void infer(const lda_bags& documents, std::size_t d);
  /// The gamma of the last document.
  [[nodiscard]] std::span<const double> gamma() const { return gamma_; }
  /// Its part of the bound: E[log p(words, topics, theta)] - E[log q(topics, theta)].
  [[nodiscard]] double bound() const;
  /// Adds the document's contribution to the expected counts of words in topics. Shape: K numbers a row of set_topics.
  /// The sums are the counts after `finish`.
  void add_counts(std::span<double> sums) const;
  void finish(std::span<double> sums) const;

 private:
  std::size_t topics_;
  double alpha_;
  int steps_;
  double tolerance_;
  // exp(E[log beta]), each row divided by exp(offset).
  std::vector<double> weight_;
  std::vector<double> offset_;
  // The document: its rows of weight_, by topic, padded to a multiple of `lanes` words without tokens.
  const std::uint32_t* word_ = nullptr;
  std::size_t words_ = 0;
  std::size_t padded_ = 0;
  std::vector<double> own_;
  std::vector<double> count_;
  std::vector<double> norm_;   // sum_k theta_k weight_k of each word
  std::vector<double> share_;  // count / norm
  std::vector<double> gamma_;
  std::vector<double> theta_;  // exp(psi(gamma)), divided by exp(-least_shift)
  std::vector<double> growth_;
  std::vector<double> shift_;
};

/// The part of the bound that depends on the rows of lambda of some words: sum over them and the topics of
/// (eta - lambda) E[log beta] + log gamma(lambda) - log gamma(eta). Shape: K numbers a word; K totals.
double topics_bound(std::span<const double> lambda, std::span<const double> totals, double eta);

/// The initial Dirichlet parameters of a word: K numbers near 1, standard deviation 0.1, a function of seed and word.
void start_row(std::uint64_t seed, std::uint64_t word, std::span<double> row);

}  // namespace paracel::alg
