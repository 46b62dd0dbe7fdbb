// SPDX-License-Identifier: BSD-3-Clause
//
// Naive Bayes: the class c with the greatest log P(c) + sum_j log P(x_j | c), whose parameters are sums over the rows
// of each class: one superstep of a com_queue, with one or two sums over the workers.
//
//   multinomial   x_j counts       P(x | c) ~ prod_j p_cj^x_j       p_cj = (N_cj + alpha) / (sum_j N_cj + alpha p)
//   bernoulli     x_j > binarize   p_cj, or 1 - p_cj                p_cj = (N_cj + alpha) / (N_c + 2 alpha)
//   gaussian      x_j numbers      normal(mean_cj, variance_cj)     variances plus a smoothing
//
// N_cj: sum over the rows of class c of weight x_j (bernoulli: of weight where x_j > binarize); N_c: of weight.
//
// Source: C. Manning, P. Raghavan, H. Schuetze, "Introduction to information retrieval", 2008, chapter 13;
// T. Chan, G. Golub, R. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alg/common/solvers/class_base.hpp"

namespace paracel::alg {

enum class feature_distribution { multinomial, bernoulli, gaussian };

struct naive_bayes_settings : class_settings {
  static constexpr auto program = "naive_bayes";
  static constexpr auto summary = "naive Bayes classifier";
  void keys(key_list& k);
  void check(const config& from);

  feature_distribution distribution = feature_distribution::multinomial;
  double alpha = 1;
  double binarize = 0;
  std::optional<double> var_smoothing;
  bool fit_prior = true;
  std::vector<double> class_prior;
  std::string prior_place;
  std::string distribution_place;  ///< if it is given
  std::string binarize_place;
};

class naive_bayes : public class_base {
 public:
  using settings_type = naive_bayes_settings;

  naive_bayes(Comm comm, const std::string& server_info, const naive_bayes_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error.
  void solve() override;

 private:
  /// Sums over rows, from which the parameters follow: a model keeps them, so that further rows can be added.
  struct row_sums {
    std::uint64_t rows = 0;
    std::vector<double> class_rows;
    std::vector<double> weight;   // of the rows of each class
    std::vector<double> count;    // multinomial, bernoulli: a number a class for each feature, as the next two
    std::vector<double> mean;     // gaussian
    std::vector<double> square;   // gaussian: sums of weighted squares around the mean
    std::vector<double> overall;  // gaussian: of each feature mean and sum of squares over all rows, without weights
  };

  void train();
  void read_model();
  void read_initial();
  void add_earlier(std::vector<double>& sums, std::vector<double>& square) const;
  void write_sums(model_writer& to, const std::vector<std::string>& names);
  void count(const sample_rows& rows);
  void measure_moments(const sample_rows& rows);
  void warn_of_smoothing(const std::vector<std::string>& names, std::span<const double> mean,
                         std::span<const double> spread, double smoothing) const;
  void set_priors();
  void prepare();
  /// Logarithms of the probabilities of the classes.
  void log_probabilities(const sample_rows& rows, std::size_t i, std::span<double> to) const;
  void use_model(run_log& log, model_writer* model);
  [[nodiscard]] double weight_of(std::size_t i) { return weights().empty() ? 1 : weights()[i]; }

  naive_bayes_settings settings_;
  std::size_t columns_ = 0;
  row_sums earlier_;           // of the initial model
  row_sums sums_;              // with the rows of this run
  std::vector<double> prior_;  // logarithms
  // A number a class for each feature: gaussian means and variances, else log p, and bernoulli log(1 - p).
  std::vector<double> first_;
  std::vector<double> second_;
  // Scores: the part common to all rows; and, for rows of which only nonzero entries are visited, that of a row of
  // zeros, excluding the steep features, whose values are visited in each row.
  std::vector<double> of_all_;
  std::vector<double> of_zeros_;
  std::vector<char> is_steep_;
  std::vector<std::size_t> steep_;
};

}  // namespace paracel::alg
