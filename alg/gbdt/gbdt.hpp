// SPDX-License-Identifier: BSD-3-Clause
//
// Gradient-boosted decision trees: the margin of a row is a sum of trees,
//
//     m(x) = m_0 + rate sum_t f_t(x)
//
// Each tree is a Newton step of the loss in the space of functions: its splits maximise, and its leaves -G / (H +
// lambda) attain, the decrease of the loss's second-order model, G and H being the sums of the rows' first and second
// derivatives. With softmax a round has a tree a class.
//
// It is a program of the communication queue: a superstep is a round. Workers keep their rows, as one byte a value;
// what they exchange are sums by feature and bin (tree_grower.hpp). Sums are of integers, quantiles are exact and
// random numbers are functions of seed, tree and global row, so the trees are the same for any number of workers.
//
// Source: J. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29, 2001;
// T. Chen, C. Guestrin, "XGBoost: a scalable tree boosting system", KDD 2016 (second order, missing values); G. Ke et
// al., "LightGBM: a highly efficient gradient boosting decision tree", NIPS 2017 (histograms, growth by leaves); Y. Shi
// et al., "Quantized training of gradient boosting decision trees", NeurIPS 2022 (integers).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/codec_packed.hpp>
#include <paracel/com_queue.hpp>
#include <paracel/paralg.hpp>
#include <paracel/schema.hpp>

#include "forest.hpp"
#include "gbdt_loss.hpp"
#include "tree_grower.hpp"
#include "tree_table.hpp"

namespace paracel::alg {

/// The keys of gbdt's config; README.md explains them.
config_schema gbdt_schema();

struct gbdt_settings {
  explicit gbdt_settings(const config& from);

  std::vector<std::string> training_input;
  std::vector<std::string> validation_input;
  std::vector<std::string> test_input;
  std::vector<std::string> predict_input;
  std::string output;
  std::string model;
  std::string format;
  table_options table;
  std::string loss;
  int rounds;
  double rate;
  grower_settings grower;
  double subsample;
  double colsample;
  std::size_t max_bins;
  int early_stopping;
  bool training_curve;
  bool leaves;
  bool xgboost;
  bool debug;
  std::uint64_t seed;
};

/// What training gives.
struct boosted_trees {
  forest trees;
  double first_margin = 0;
  int rounds = 0;  ///< done; the trees are those of the best one
  int best_round = 0;
  double training = 0;    ///< loss of the best round
  double validation = 0;  ///< the same of the validation rows
  MSGPACK_DEFINE(trees, first_margin, rounds, best_round, training, validation)
};

class gbdt : public paralg {
 public:
  gbdt(Comm comm, const std::string& server_info, const gbdt_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; config_error.
  void solve() override;

 private:
  void train();
  void use_model();
  [[nodiscard]] boosted_trees boost(run_log& log);
  void load_others();
  [[nodiscard]] std::size_t outputs() const { return loss_ == boosting_loss::softmax ? classes_.size() : 1; }
  // The names of losses in metrics and results, and what is shown of a loss.
  [[nodiscard]] const char* training_name() const { return loss_ == boosting_loss::squared ? "train_rmse" : "loss"; }
  [[nodiscard]] const char* validation_name() const {
    return loss_ == boosting_loss::squared ? "validate_rmse" : "validate_loss";
  }
  [[nodiscard]] double shown(double loss) const { return loss_ == boosting_loss::squared ? std::sqrt(loss) : loss; }
  /// Margins of all rows of a table, row by row.
  [[nodiscard]] std::vector<double> margins(const table_rows& rows, const boosted_trees& model) const;
  void write_model(const boosted_trees& model);
  void write_predictions(const boosted_trees& model);
  void test(const boosted_trees& model, run_log& log);

  gbdt_settings settings_;
  boosting_loss loss_ = boosting_loss::squared;
  std::vector<std::string> classes_;
  std::vector<std::string> names_;
  std::vector<bool> categorical_;
  std::size_t columns_ = 0;
  table_rows training_;
  table_rows validation_;
  table_rows test_;
  table_rows predict_;
};

}  // namespace paracel::alg
