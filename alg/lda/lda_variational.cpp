// SPDX-License-Identifier: BSD-3-Clause
#include "lda_variational.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include <paracel/random.hpp>

#include "alg/common/solvers/cpu_dispatch.hpp"
#include "lda_model.hpp"

namespace paracel::alg {

namespace {

constexpr std::size_t lanes = 8;
// Added to sums that may underflow to 0.
constexpr double least_norm = 1e-290;

/// exp(x) for x <= 0, at least exp(-708), to 2e-16 relative; unlike std::exp the compiler can vectorise it.
PARACEL_INLINE double exp_below_one(double x) {
  constexpr double rounder = 0x1.8p52;  // adding it leaves the rounded number in the lowest bits
  const double y = x > -708.0 ? x : -708.0;
  const double power = y * 1.4426950408889634 + rounder;
  const double n = power - rounder;
  const double r = (y - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;  // log 2 in two parts
  double sum = 1.0 / 6227020800;
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  sum = sum * r + 1;
  sum = sum * r + 1;
  return sum * std::bit_cast<double>((std::bit_cast<std::uint64_t>(power) << 52U) + 0x3ff0000000000000U);
}

/// The arrays that infer works on; those by word have `padded` elements.
struct document_view {
  std::size_t topics;
  std::size_t padded;
  const double* own;
  const double* count;
  double* norm;
  double* share;
  double* gamma;
  double* theta;
  double* growth;
  double* shift;
};

PARACEL_INLINE void set_theta(const document_view& v) {
  const double* __restrict gamma = v.gamma;
  double* __restrict growth = v.growth;
  double* __restrict shift = v.shift;
  double* __restrict theta = v.theta;
  for (std::size_t k = 0; k < v.topics; ++k) {
    const auto p = digamma_parts_of(gamma[k]);
    growth[k] = p.growth;
    shift[k] = p.shift;
  }
  double least = shift[0];
  for (std::size_t k = 1; k < v.topics; ++k) least = shift[k] < least ? shift[k] : least;
  for (std::size_t k = 0; k < v.topics; ++k) theta[k] = growth[k] * exp_below_one(least - shift[k]);
}

/// norm = theta . own, of each word.
PARACEL_INLINE void set_norm(const document_view& v) {
  double* __restrict norm = v.norm;
  std::fill_n(norm, v.padded, least_norm);
  std::size_t k = 0;
  for (; k + 4 <= v.topics; k += 4) {
    const double* __restrict a = v.own + k * v.padded;
    const double* __restrict b = a + v.padded;
    const double* __restrict c = b + v.padded;
    const double* __restrict d = c + v.padded;
    const double ta = v.theta[k], tb = v.theta[k + 1], tc = v.theta[k + 2], td = v.theta[k + 3];
    for (std::size_t i = 0; i < v.padded; ++i) norm[i] += (ta * a[i] + tb * b[i]) + (tc * c[i] + td * d[i]);
  }
  for (; k < v.topics; ++k) {
    const double* __restrict a = v.own + k * v.padded;
    const double t = v.theta[k];
    for (std::size_t i = 0; i < v.padded; ++i) norm[i] += t * a[i];
  }
}

PARACEL_INLINE double lane_dot(const double* __restrict a, const double* __restrict b, std::size_t n) {
  double lane[lanes] = {};
  for (std::size_t i = 0; i < n; i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) lane[l] += a[i + l] * b[i + l];
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

PARACEL_INLINE void infer_body(const document_view& v, double alpha, int steps, double tolerance) {
  std::fill_n(v.gamma, v.topics, 1.0);
  set_theta(v);
  set_norm(v);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < v.padded; ++i) v.share[i] = v.count[i] / v.norm[i];
    double change = 0;
    for (std::size_t k = 0; k < v.topics; ++k) {
      const double next = alpha + v.theta[k] * lane_dot(v.own + k * v.padded, v.share, v.padded);
      change += std::abs(next - v.gamma[k]);
      v.gamma[k] = next;
    }
    set_theta(v);
    set_norm(v);
    if (change < tolerance * static_cast<double>(v.topics)) break;
  }
}
auto* const infer_here = compiled_for<infer_body>::this_cpu();

/// weight = growth / growth of the topic * exp(shift of the topic - shift - offset) for a row.
PARACEL_INLINE double weigh_body(const double* __restrict lambda, const double* __restrict total_growth,
                                 const double* __restrict total_shift, double* __restrict shift,
                                 double* __restrict weight, std::size_t topics) {
  for (std::size_t k = 0; k < topics; ++k) {
    const auto p = digamma_parts_of(lambda[k]);
    shift[k] = total_shift[k] - p.shift;
    weight[k] = p.growth * total_growth[k];
  }
  double most = shift[0];
  for (std::size_t k = 1; k < topics; ++k) most = shift[k] > most ? shift[k] : most;
  for (std::size_t k = 0; k < topics; ++k) weight[k] *= exp_below_one(shift[k] - most);
  return most;
}
auto* const weigh_here = compiled_for<weigh_body>::this_cpu();

}  // namespace

topic_inference::topic_inference(std::size_t topics, double alpha, int steps, double tolerance)
    : topics_(topics),
      alpha_(alpha),
      steps_(steps),
      tolerance_(tolerance),
      gamma_(topics),
      theta_(topics),
      growth_(topics),
      shift_(topics) {}

void topic_inference::set_topics(std::span<const double> lambda, std::span<const double> totals) {
  const auto words = lambda.size() / topics_;
  weight_.resize(lambda.size());
  offset_.resize(words);
  std::vector<double> growth(topics_);  // its reciprocal
  std::vector<double> shift(topics_);
  for (std::size_t k = 0; k < topics_; ++k) {
    const auto p = digamma_parts_of(totals[k]);
    growth[k] = 1 / p.growth;
    shift[k] = p.shift;
  }
  for (std::size_t w = 0; w < words; ++w) {
    offset_[w] = weigh_here(lambda.data() + w * topics_, growth.data(), shift.data(), shift_.data(),
                            weight_.data() + w * topics_, topics_);
  }
}

void topic_inference::infer(const lda_bags& documents, std::size_t d) {
  const auto from = documents.begin[d];
  words_ = documents.length(d);
  word_ = documents.word.data() + from;
  padded_ = (words_ + lanes - 1) / lanes * lanes;
  own_.resize(topics_ * padded_);
  for (auto* array : {&count_, &norm_, &share_}) array->assign(padded_, 0.0);
  std::copy_n(documents.count.data() + from, words_, count_.data());
  for (std::size_t k = 0; k < topics_; ++k) std::fill_n(own_.data() + k * padded_ + words_, padded_ - words_, 0.0);
  for (std::size_t i = 0; i < words_; ++i) {
    const double* row = weight_.data() + word_[i] * topics_;
    for (std::size_t k = 0; k < topics_; ++k) own_[k * padded_ + i] = row[k];
  }
  infer_here({topics_, padded_, own_.data(), count_.data(), norm_.data(), share_.data(), gamma_.data(), theta_.data(),
              growth_.data(), shift_.data()},
             alpha_, steps_, tolerance_);
}

double topic_inference::bound() const {
  const double total = std::accumulate(gamma_.begin(), gamma_.end(), 0.0);
  const double prior = static_cast<double>(topics_) * alpha_;
  const double all = digamma(total);
  const double least = *std::ranges::min_element(shift_);
  double value = log_gamma(prior) - log_gamma(total) - static_cast<double>(topics_) * log_gamma(alpha_);
  for (std::size_t i = 0; i < words_; ++i) value += count_[i] * (std::log(norm_[i]) + offset_[word_[i]] - least - all);
  for (std::size_t k = 0; k < topics_; ++k)
    value += (alpha_ - gamma_[k]) * (std::log(growth_[k]) - shift_[k] - all) + log_gamma(gamma_[k]);
  return value;
}

void topic_inference::add_counts(std::span<double> sums) const {
  for (std::size_t i = 0; i < words_; ++i) {
    const double share = count_[i] / norm_[i];
    double* const to = sums.data() + word_[i] * topics_;
    for (std::size_t k = 0; k < topics_; ++k) to[k] += share * theta_[k];
  }
}

void topic_inference::finish(std::span<double> sums) const {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] *= weight_[i];
}

double topics_bound(std::span<const double> lambda, std::span<const double> totals, double eta) {
  const auto topics = totals.size();
  std::vector<double> all;
  for (const auto t : totals) all.push_back(digamma(t));
  double value = -static_cast<double>(lambda.size()) * log_gamma(eta);
  for (std::size_t i = 0; i < lambda.size(); ++i)
    value += (eta - lambda[i]) * (digamma(lambda[i]) - all[i % topics]) + log_gamma(lambda[i]);
  return value;
}

void start_row(std::uint64_t seed, std::uint64_t word, std::span<double> row) {
  counter_random random(seed, 0, word);
  // Gamma of shape 100 and mean 1, by Wilson and Hilferty's cube of a normal number.
  for (auto& v : row) {
    const double root = std::max(1 - 1.0 / 900 + random.normal() / 30, 1e-3);
    v = root * root * root;
  }
}

}  // namespace paracel::alg
