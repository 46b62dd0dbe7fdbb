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

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/codec_packed.hpp>
#include <paracel/com_queue.hpp>
#include <paracel/schema.hpp>

#include "alg/gbdt/forest.hpp"
#include "alg/gbdt/gbdt_loss.hpp"
#include "alg/gbdt/tree_base.hpp"
#include "bagged_grower.hpp"

namespace paracel::alg {

/// The keys of random_forest's config; README.md explains them.
config_schema random_forest_schema();

struct random_forest_settings {
  explicit random_forest_settings(const config& from);

  tree_settings tree;
  std::string type;
  int trees;
  bagging_settings bagging;  // features: 0 for the default
  bool bootstrap;
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

class random_forest : public tree_base {
 public:
  random_forest(Comm comm, const std::string& server_info, const random_forest_settings& settings);

 private:
  void train() override;
  void read_model() override;
  void set_type(const std::string& type);
  [[nodiscard]] const forest& trees() const override { return model_.trees; }
  /// The mean of the trees.
  [[nodiscard]] std::vector<double> scores(const sample_rows& rows) const override;
  void to_predictions(std::vector<double>&) const override {}  // they are
  /// The name of the out-of-bag error, and what is shown of it.
  [[nodiscard]] const char* log_name() const { return classifies() ? "oob_accuracy" : "oob_rmse"; }
  [[nodiscard]] double shown(const boosting_quality& q) const { return classifies() ? q.accuracy : std::sqrt(q.loss); }
  [[nodiscard]] bagged_trees bag(run_log& log);
  /// The error by the trees so far. A collective.
  void measure_out_of_bag(collectives& all, const std::vector<double>& votes, const std::vector<double>& voters,
                          bagged_trees& to) const;
  void write_model();

  random_forest_settings settings_;
  bagged_trees model_;
};

}  // namespace paracel::alg
