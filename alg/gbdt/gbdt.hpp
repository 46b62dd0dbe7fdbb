// SPDX-License-Identifier: BSD-3-Clause
//
// Gradient-boosted decision trees: the margin of a row is a sum of trees,
//
//     m(x) = m_0 + rate sum_t f_t(x)
//
// Each tree is a Newton step of the loss in the space of functions: its splits maximise, and its leaves -G / (H +
// lambda) attain, the decrease of the loss's second-order model, G and H being the sums of the rows' first and second
// derivatives. With softmax a round has one tree per class.
//
// Workers keep their rows, as one byte a value; what they exchange are sums by feature and bin (tree_grower.hpp). Sums
// are of integers, quantiles are exact and random numbers are functions of seed, tree and global row, so the trees are
// the same for any number of workers.
//
// Source: J. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29, 2001;
// T. Chen, C. Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016 (second order, missing values); G. Ke et
// al., "LightGBM: a highly efficient gradient boosting decision tree", NIPS 2017 (histograms, growth by leaves); Y. Shi
// et al., "Quantized training of gradient boosting decision trees", NeurIPS 2022 (integers).
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/collectives.hpp>

#include "forest.hpp"
#include "ranking.hpp"
#include "tree_base.hpp"
#include "tree_grower.hpp"

namespace paracel::alg {

struct gbdt_settings : tree_settings {
  static constexpr auto program = "gbdt";
  static constexpr auto summary = "gradient-boosted decision trees";
  void keys(key_list& k);
  void check(const config& from);
  void check_host_functions(const config& from) const;

  std::vector<std::string> validation_input;
  boosting_loss loss = boosting_loss::squared;
  std::size_t truncation = 30;
  std::size_t ndcg_at = 10;
  int rounds = 100;
  double rate = 0.1;
  grower_settings grower;
  double subsample = 1;
  double colsample = 1;
  int early_stopping = 0;
  bool training_curve = false;
  bool xgboost = true;
  std::string objective;  ///< the name of host_functions::objective; empty: the loss
  std::string eval_metric;
  std::optional<double> first_margin;
  std::string group_place;  ///< of the key group, for errors
  std::string loss_place;   ///< of the key loss, if it is given
};

/// The result of training.
struct boosted_trees {
  forest trees;
  double first_margin = 0;
  int rounds = 0;  ///< done; the trees are those of the best one
  int best_round = 0;
  double training = 0;    ///< loss of the best round; with lambdamart -NDCG
  double validation = 0;  ///< the same for the validation rows
  MSGPACK_DEFINE(trees, first_margin, rounds, best_round, training, validation)
};

class gbdt : public tree_base {
 public:
  using settings_type = gbdt_settings;

  gbdt(Comm comm, const std::string& server_info, const gbdt_settings& settings);

 private:
  void train() override;
  void read_model(const std::string& where) override;
  [[nodiscard]] const forest& trees() const override { return model_.trees; }
  [[nodiscard]] std::vector<double> scores(const sample_rows& rows) const override {
    return sums(rows, model_.first_margin);
  }
  void to_predictions(std::vector<double>& scores) const override {
    if (!raw()) alg::to_predictions(loss(), scores, outputs());
  }
  /// Adds trees to those of the initial model. A collective.
  [[nodiscard]] boosted_trees boost(run_log& log);
  [[nodiscard]] int initial_rounds() const { return static_cast<int>(trees().trees() / outputs()); }
  void check_margins(int round, std::span<const double> margins, double first) const;
  /// The derivatives of the host's objective for all outputs, weighted.
  void own_derivatives(std::span<const double> margins, std::vector<double>& first, std::vector<double>& second) const;
  /// What is followed for the validation rows: the host's metric or loss_of. A collective.
  [[nodiscard]] double validation_loss(collectives& all, std::optional<ranking_groups>& groups,
                                       const std::vector<double>& margins) const;
  /// The loss of rows with these margins; with lambdamart -NDCG. A collective.
  [[nodiscard]] double loss_of(collectives& all, const sample_rows& rows, std::optional<ranking_groups>& groups,
                               std::vector<double> margins) const;
  // The names of losses in metrics and results, and the value shown for a loss.
  [[nodiscard]] const char* training_name() const {
    return classifies() ? "loss" : ranks() ? "train_ndcg" : "train_rmse";
  }
  [[nodiscard]] const char* validation_name() const {
    return own_metric()   ? "validate_metric"
           : classifies() ? "validate_loss"
           : ranks()      ? "validate_ndcg"
                          : "validate_rmse";
  }
  [[nodiscard]] double shown_validation(double loss) const { return own_metric() ? loss : shown(loss); }
  [[nodiscard]] bool own_metric() const noexcept { return !settings_.eval_metric.empty(); }
  [[nodiscard]] double shown(double loss) const { return classifies() ? loss : ranks() ? -loss : std::sqrt(loss); }
  [[nodiscard]] xgboost_form form() const;
  void write_model();
  void write_xgboost();

  gbdt_settings settings_;
  sample_rows validation_;
  boosted_trees model_;
};

}  // namespace paracel::alg
