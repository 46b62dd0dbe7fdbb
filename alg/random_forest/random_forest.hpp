// SPDX-License-Identifier: BSD-3-Clause
//
// A random forest: trees on bootstrap samples, each node of which tests a few features drawn at random. The prediction
// is the mean of the trees': shares of the classes, or a number. Rows that a tree has not drawn measure it: the
// out-of-bag error.
//
// It is a program of the communication queue: a superstep is a tree. How often a row is drawn is a function of seed,
// tree and global row, and the features of a node one of seed, tree and node, and sums are of integers, so the forest
// is the same for any number of workers. A row is drawn as often as a Poisson variable of mean 1 (or the row's weight)
// says: the limit of a bootstrap of as many draws as there are rows, and no worker needs to know of the others' draws.
//
// Source: L. Breiman, "Random forests", Machine Learning 45, 2001; N. Oza, S. Russell, "Online bagging and boosting",
// AISTATS 2001 (Poisson draws).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/codec_packed.hpp>
#include <paracel/com_queue.hpp>
#include <paracel/paralg.hpp>
#include <paracel/schema.hpp>

#include "alg/gbdt/forest.hpp"
#include "alg/gbdt/gbdt_loss.hpp"
#include "alg/gbdt/tree_table.hpp"
#include "bagged_grower.hpp"

namespace paracel::alg {

/// The keys of random_forest's config; README.md explains them.
config_schema random_forest_schema();

struct random_forest_settings {
  explicit random_forest_settings(const config& from);

  std::vector<std::string> training_input;
  std::vector<std::string> test_input;
  std::vector<std::string> predict_input;
  std::string output;
  std::string model;
  std::string format;
  table_options table;
  std::string type;
  int trees;
  bagging_settings bagging;  // features: 0 for the default
  bool bootstrap;
  std::size_t max_bins;
  bool leaves;
  bool debug;
};

/// What training gives: the trees, and the error of rows by the trees that have not drawn them.
struct bagged_trees {
  forest trees;
  boosting_quality out_of_bag;
  std::uint64_t out_of_bag_rows = 0;  ///< that some tree has not drawn
  MSGPACK_DEFINE(trees, out_of_bag.loss, out_of_bag.accuracy, out_of_bag_rows)
};

/// How often a row is drawn, with this mean: at most 65535. Throws nothing.
std::uint16_t times_drawn(std::uint64_t seed, std::uint64_t tree, std::uint64_t row, double mean) noexcept;

class random_forest : public paralg {
 public:
  random_forest(Comm comm, const std::string& server_info, const random_forest_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; config_error.
  void solve() override;

 private:
  void train();
  void use_model();
  void load_others();
  [[nodiscard]] bool classifies() const { return settings_.type == "classification"; }
  [[nodiscard]] std::size_t outputs() const { return classifies() ? classes_.size() : 1; }
  /// As the losses of gbdt name it.
  [[nodiscard]] boosting_loss loss() const { return classifies() ? boosting_loss::softmax : boosting_loss::squared; }
  /// The name of the out-of-bag error.
  [[nodiscard]] const char* log_name() const { return classifies() ? "oob_accuracy" : "oob_rmse"; }
  [[nodiscard]] bagged_trees bag(run_log& log);
  /// The error by the trees so far. A collective.
  void measure_out_of_bag(collectives& all, const std::vector<double>& votes, const std::vector<double>& voters,
                          bagged_trees& to) const;
  [[nodiscard]] std::vector<double> predictions(const table_rows& rows, const forest& trees) const;
  void write_model(const bagged_trees& model);
  void write_predictions(const forest& trees);
  void test(const forest& trees, run_log& log);

  random_forest_settings settings_;
  std::vector<std::string> classes_;
  std::vector<std::string> names_;
  std::size_t columns_ = 0;
  table_rows training_;
  table_rows test_;
  table_rows predict_;
};

}  // namespace paracel::alg
