// SPDX-License-Identifier: BSD-3-Clause
//
// Binary logistic regression with an L2 penalty, trained by four methods with parameters in the servers, and three
// second-order ones of paracel/optim.hpp, on rows distributed over the workers.
//
//     J(theta) = (1/n) sum_i weight_i log(1 + exp(-y_i theta.x_i)) + beta |theta|^2      y_i = -1 or +1
//
// n is the sum of the weights of all workers' rows: their number without weights. With a bias the first coordinate of
// theta is that of a feature that is always 1.
//
// Source: K. Hall et al., "MapReduce/Bigtable for distributed optimization", NIPS LCCC 2010 (dgd, ipm);
// J. Dean et al., "Large scale distributed deep networks", NIPS 2012 (downpour); B. Recht et al., "Hogwild!", NIPS 2011
// (agd). The names are Paracel's.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/metrics.hpp>

#include "alg/common/solvers/classification.hpp"
#include "alg/common/solvers/linear_base.hpp"

namespace paracel::alg {

/// theta.x_i for any rows of these features.
inline double lr_margin(const sample_rows& rows, std::size_t i, std::span<const double> theta, bool bias) {
  return (bias ? theta[0] : 0.0) + row_product(rows, i, theta.subspan(bias ? 1 : 0));
}

/// This worker's rows and its part of J. Local; logistic_regression communicates.
/// Thread-safety: const-concurrent
class lr_problem {
 public:
  lr_problem() = default;
  /// `columns`: features of the whole input, at least rows.columns. Sparse rows stay sparse.
  lr_problem(sample_rows rows, std::size_t columns, bool bias, bool penalize_bias, double beta)
      : rows_(std::move(rows)), columns_(columns), beta_(beta), bias_(bias), penalize_bias_(penalize_bias) {
    weight_ = static_cast<double>(rows_.rows());
    if (!rows_.weight.empty()) weight_ = std::accumulate(rows_.weight.begin(), rows_.weight.end(), 0.0);
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.rows(); }
  /// The sum of the rows' weights: their number without weights.
  [[nodiscard]] double weight() const noexcept { return weight_; }
  /// Number of coordinates of theta.
  [[nodiscard]] std::size_t dimension() const noexcept { return columns_ + first(); }
  [[nodiscard]] sample_rows& samples() noexcept { return rows_; }

  /// theta.x_i
  [[nodiscard]] double margin(std::size_t i, std::span<const double> theta) const {
    return lr_margin(rows_, i, theta, bias_);
  }

  /// Adds the weighted sum over the rows of the gradients of the loss to `gradient`; returns that of the losses.
  double add_gradient(std::span<const double> theta, std::span<double> gradient) const {
    double loss = 0;
    for (std::size_t i = 0; i < rows(); ++i) {
      const double z = rows_.label[i] * margin(i, theta);
      // One exponential for both the loss and its derivative.
      const double e = std::exp(-std::abs(z));
      const double weight = weight_of_row(rows_, i);
      loss += weight * (std::log1p(e) + (z < 0 ? -z : 0.0));
      const double slope = z < 0 ? 1 / (1 + e) : e / (1 + e);
      add(i, -weight * rows_.label[i] * slope, gradient);
    }
    return loss;
  }

  /// beta |theta|^2
  [[nodiscard]] double penalty(std::span<const double> theta) const {
    double sum = 0;
    for (std::size_t j = first_penalized(); j < theta.size(); ++j) sum += theta[j] * theta[j];
    return beta_ * sum;
  }
  /// gradient += weight * 2 beta theta
  void add_penalty_gradient(std::span<const double> theta, double weight, std::span<double> gradient) const {
    for (std::size_t j = first_penalized(); j < theta.size(); ++j) gradient[j] += weight * 2 * beta_ * theta[j];
  }

  /// The change of theta by a step of size alpha along row i alone: delta = -alpha (loss_i' + 2 beta theta). With
  /// weights alpha is the size for one that is their mean over all workers, `mean_weight`.
  void row_step(std::size_t i, double alpha, std::span<const double> theta, std::span<double> delta,
                double mean_weight = 1) const {
    alpha *= weight_of_row(rows_, i) / mean_weight;
    const double y = rows_.label[i];
    const double pull = alpha * y * logistic(-y * margin(i, theta));
    const double shrink = -2 * alpha * beta_;
    if (bias_) delta[0] = penalize_bias_ ? shrink * theta[0] : 0;
    for (std::size_t j = first(); j < theta.size(); ++j) delta[j] = shrink * theta[j];
    add(i, pull, delta);
  }

  /// Steps of size alpha along the rows of `order`, one after the other, in place.
  /// Cost: O(entries of the rows + dimension): the penalty scales a common factor instead of each coordinate.
  void row_steps(std::span<const std::size_t> order, double alpha, std::span<double> theta,
                 double mean_weight = 1) const {
    const auto weights = theta.subspan(first());
    double factor = 1;
    const auto apply_factor = [&] {
      for (auto& w : weights) w *= factor;
      factor = 1;
    };
    for (const auto i : order) {
      const double y = rows_.label[i];
      const double z = y * ((bias_ ? theta[0] : 0.0) + factor * row_product(rows_, i, weights));
      const double step = alpha * weight_of_row(rows_, i) / mean_weight;
      const double shrink = 1 - 2 * step * beta_;
      const double pull = step * y * logistic(-z);
      factor *= shrink;
      // This also covers an alpha * beta so large that the factor becomes 0 or grows.
      if (std::abs(factor) < 1e-100 || std::abs(factor) > 1e100) apply_factor();
      if (bias_) theta[0] = theta[0] * (penalize_bias_ ? shrink : 1) + pull;
      add_row(rows_, i, pull / factor, weights);
    }
    apply_factor();
  }

 private:
  [[nodiscard]] std::size_t first() const noexcept { return bias_ ? 1 : 0; }
  [[nodiscard]] std::size_t first_penalized() const noexcept { return bias_ && !penalize_bias_ ? 1 : 0; }
  void add(std::size_t i, double times, std::span<double> to) const {
    if (bias_) to[0] += times;
    add_row(rows_, i, times, to.subspan(first()));
  }

  sample_rows rows_;
  std::size_t columns_ = 0;
  double weight_ = 0;
  double beta_ = 0;
  bool bias_ = true;
  bool penalize_bias_ = true;
};

enum class lr_method { dgd, ipm, downpour, agd, lbfgs, newton, owlqn };

struct lr_settings : linear_settings {
  static constexpr auto program = "lr";
  static constexpr auto summary = "logistic regression with an L2 penalty";
  void keys(key_list& k);
  /// Throws: config_error if there is neither a model nor everything that training needs.
  void check(const config& from);

  std::string update_file;
  std::string update_func;
  lr_method method = lr_method::dgd;
  bool sums_gradients = false;  ///< dgd: alpha multiplies their sum, not their mean
  int rounds = 0;
  std::optional<double> alpha;
  double decay = 0;
  double beta = 0;
  double l1 = 0;
  double gradient_tolerance = 1e-6;
  bool work_stealing = false;
  std::uint64_t seed = 0;
  std::size_t batch_size = 0;
  double tolerance = 0;
  bool bias = true;
  std::string bias_place;
  bool penalize_bias = true;
  paracel::consistency consistency;

  [[nodiscard]] const char* method_name() const;
  /// Whether the method's updates take effect immediately, which excludes bsp.
  [[nodiscard]] bool immediate() const { return method == lr_method::downpour || method == lr_method::agd; }
  /// Whether the method is one of paracel/optim.hpp: supersteps of workers, without the servers.
  [[nodiscard]] bool uses_queue() const { return method >= lr_method::lbfgs; }
  /// Not asp: a worker on a busy processor would run its last rounds alone, and theta would end at the optimum of its
  /// rows instead of all rows.
  [[nodiscard]] paracel::consistency default_consistency() const {
    return uses_queue()  ? paracel::consistency::asp()
           : immediate() ? paracel::consistency::ssp(0)
                         : paracel::consistency::bsp();
  }
};

/// Where training begins: zeros, or at the initial model.
struct lr_start {
  std::vector<double> theta;
  int rounds = 0;  ///< that it was trained for by the same method, which are numbered on
};

/// What a method is given. Lifetime: all of it must outlive the method.
struct lr_task {
  paralg& job;
  const lr_settings& settings;
  lr_problem& problem;
  const lr_start& start;
  std::size_t total_rows;  ///< of all workers
  double total_weight;     ///< of these rows
  run_log& log;
};

/// What a method returns.
struct lr_fit {
  std::vector<double> theta;
  double objective = 0;  ///< J(theta)
  int rounds = 0;        ///< those of the start included
  std::size_t rows = 0;  ///< of all workers that were left
};

/// A method of training, with its state.
class lr_training {
 public:
  virtual ~lr_training() = default;
  /// A collective. Throws: error when the objective diverges.
  virtual lr_fit run() = 0;
  virtual void checkpoint_state(saved_state& /*to*/) {}
  virtual void restore_state(const saved_states& /*from*/) {}
};
/// The method that the settings name.
std::unique_ptr<lr_training> lr_training_of(const lr_task& task);

class logistic_regression : public linear_base {
 public:
  using settings_type = lr_settings;

  logistic_regression(Comm comm, const std::string& server_info, const lr_settings& settings);
  /// As in Paracel 0.3: `solve` only loads and trains; the driver then calls the functions below as needed.
  logistic_regression(Comm comm, const std::string& server_info, const std::string& input, const std::string& output,
                      const std::string& update_file, const std::string& update_func, const std::string& method = "ipm",
                      int rounds = 1, double alpha = 0.002, double beta = 0.1, bool debug = false);

  /// Loads, trains (or reads a model), tests, predicts and writes the results.
  /// Throws: data_error; error when the objective diverges.
  void solve() override;

  // ---- after training; all but the first and the last are collectives

  /// The probability of class 1 for a sample, which has a leading 1 if there is a bias. Throws: error for a wrong
  /// length.
  [[nodiscard]] double lr_hypothesis(const std::vector<double>& sample) const;
  /// The mean of the losses of all workers' training samples, without the penalty.
  double calc_loss();
  /// Rank 0 prints the mean loss of other samples: `loss in test dataset is: `. Throws: data_error.
  void test(const std::string& input);
  /// Predicts samples, with or without labels, for dump_result. Throws: data_error.
  void predict(const std::string& input);
  /// Writes the model and the predictions.
  void dump_result();
  /// The numbers on a line of stdout.
  static void print(const std::vector<double>& numbers);

  void checkpoint_state(saved_state& to) override {
    if (training_) training_->checkpoint_state(to);
  }
  void restore_state(const saved_states& from) override { training_->restore_state(from); }

 private:
  void train();
  void read_model();
  void read_initial();
  void measure();
  void dump_model();
  void dump_predicted();
  [[nodiscard]] double mean_loss(const lr_problem& of);
  [[nodiscard]] lr_problem problem_of(sample_rows rows) const;

  lr_settings settings_;
  bool by_driver_ = false;      // a 0.3 driver calls the steps after training itself
  std::optional<run_log> log_;  // created after loading
  lr_problem problem_;
  lr_start start_;
  std::unique_ptr<lr_training> training_;
  lr_fit fit_;
  classification_quality quality_;
};

}  // namespace paracel::alg
