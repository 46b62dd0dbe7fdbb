// SPDX-License-Identifier: BSD-3-Clause
//
// Factorization machine of degree 2, on the parameter servers or, by alternating least squares, without them:
//
//     m(x) = w_0 + sum_j w_j x_j + sum_{j<l} (v_j . v_l) x_j x_l
//     F = sum_i weight_i (loss(m(x_i), y_i) + sum_{j in x_i} (beta_w/2 w_j^2 + beta_v/2 |v_j|^2))
//
// A feature is a row of a table in the servers: w_j and the k numbers v_j. Each batch pulls the rows of its features
// and sends the gradients of these rows; the servers apply the step, plain or with AdaGrad's state stored next to the
// row. fm_als.hpp has the other method.
//
// Source: Rendle, "Factorization machines", ICDM 2010; "Factorization machines with libFM", ACM TIST 2012.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/table.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/validation.hpp"
#include "alg/common/solvers/class_base.hpp"
#include "fm_initial.hpp"
#include "fm_kernel.hpp"

namespace paracel::alg {

enum class fm_method { adagrad, sgd, als };

struct fm_settings : class_settings, validation_settings {
  static constexpr auto program = "fm";
  static constexpr auto summary =
      "factorization machine of degree 2, by stochastic gradient descent or alternating least squares";
  void keys(key_list& k);
  void check(const config& from);

  fm_loss loss = fm_loss::squared;
  fm_method method = fm_method::adagrad;
  std::size_t k = 8;
  int rounds = 20;
  std::uint64_t batch_size = 1000;
  double alpha = 0.05;
  fm_penalty penalty;
  double start = 0.01;
  std::uint64_t seed = 0;
  bool bias = true;
  bool clamp = false;
  paracel::consistency consistency = paracel::consistency::bsp();
  std::string loss_place;
  std::string bias_place;
  std::string k_place;  ///< if it is given
};

class factorization_machine : public class_base {
 public:
  using settings_type = fm_settings;

  factorization_machine(Comm comm, const std::string& server_info, const fm_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results.
  /// Throws: data_error; error when the loss diverges.
  void solve() override;

 private:
  /// Quality on held-out rows after a round.
  struct validation {
    explicit validation(const std::vector<double>& sums) : loss(sums[1] / sums[0]), accuracy(sums[2] / sums[0]) {}
    double loss;  // mean
    double accuracy;
  };

  void read_initial();
  void load();
  [[nodiscard]] double first_bias();
  [[nodiscard]] divergence_rule rule() const;
  void start_rows(double bias);
  [[nodiscard]] std::vector<std::int64_t> stepped_rows();
  void push_initial_rows(const std::vector<std::int64_t>& steps);
  void train();
  void alternate(double bias);
  /// For this worker's held-out rows, with the rows of the table or with `model`: their weight, the sum of losses, and
  /// the hits.
  [[nodiscard]] std::vector<double> held_out(const std::vector<double>* model);
  [[nodiscard]] run_log::figures validation_figures(const validation& found) const;
  void copy_own_rows(table<double>& from, table<double>& to);
  void measure();
  void write();
  /// adagrad's state of the model rows that this worker writes. A collective.
  [[nodiscard]] std::vector<double> own_squares();
  void read_model();
  void use_model(model_writer* model);
  [[nodiscard]] bool is_log() const noexcept { return settings_.loss == fm_loss::log; }
  [[nodiscard]] double prediction(double margin) const;
  /// Pulls the rows of batch_ into model_.
  void pull_batch();
  /// Calls `use(sample, margin)` for all samples, block by block; with the rows of the table, or with `model` if it is
  /// not null.
  template <class F>
  void for_margins(const sample_rows& rows, const std::vector<double>* model, F&& use);
  [[nodiscard]] std::vector<double> margins(const sample_rows& rows);
  /// Calls `use(ids)` for the model rows that this worker copies and writes, block by block.
  template <class F>
  void for_own_ids(F&& use);

  fm_settings settings_;
  run_log log_;
  sample_rows rows_;
  sample_rows held_;
  std::uint32_t columns_ = 0;
  std::vector<std::string> names_;  // of features, if the input has them
  double least_ = 0;                // target
  double greatest_ = 0;
  int rounds_done_ = 0;
  double weight_total_ = 0;
  double scale_ = 0;  // of the loss
  double start_loss_ = 0;
  std::optional<table<double>> table_;
  std::optional<table<double>> best_;
  fm_kernel kernel_;
  fm_batch batch_;
  fm_initial initial_;
  fm_squares squares_;         // with adagrad
  std::vector<double> model_;  // rows of batch_
};

}  // namespace paracel::alg
