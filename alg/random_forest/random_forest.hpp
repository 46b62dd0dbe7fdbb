// SPDX-License-Identifier: BSD-3-Clause
//
// A random forest: trees on bootstrap samples, each node of which tests a few features drawn at random. The prediction
// is the mean of the trees': shares of the classes, or a number. Rows that a tree has not drawn measure it: the
// out-of-bag error.
//
// How often a row is drawn is a function of seed, tree and global row; the features of a node are one of seed, tree and
// node; sums are of integers. So the forest is the same for any number of workers. The draws of a row are Poisson with
// mean 1 (or the row's weight): the limit of a bootstrap of as many draws as there are rows, in which workers need not
// know each other's draws. Weights below 1 on average are shares: they are scaled up to a mean of 1. A tree without any
// draw is drawn again.
//
// Targets far from 0 are moved there by their mean, which is added to predictions: leaves are floats, whose precision
// would otherwise be lost to the offset.
//
// Source: L. Breiman, "Random forests", Machine Learning 45, 2001; N. Oza, S. Russell, "Online bagging and boosting",
// AISTATS 2001 (Poisson draws).
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/collectives.hpp>

#include "alg/gbdt/forest.hpp"
#include "alg/gbdt/gbdt_loss.hpp"
#include "alg/gbdt/tree_base.hpp"
#include "bagged_grower.hpp"

namespace paracel::alg {

struct random_forest_settings : tree_settings {
  static constexpr auto program = "random_forest";
  static constexpr auto summary = "random forests of classification and regression trees";
  void keys(key_list& k);
  void check(const config& from);

  boosting_loss loss = boosting_loss::softmax;  ///< for classes; squared: for numbers
  int trees = 100;
  bagging_settings bagging{.features = 0};  ///< features: 0 for the default
  bool bootstrap = true;
  std::string type_place;  ///< of the key type, if it is given
};

/// The result of training: the trees, and the error of rows by the trees that have not drawn them.
struct bagged_trees {
  forest trees;
  double centre = 0;  ///< of targets: a leaf is a difference from it
  boosting_quality out_of_bag;
  std::uint64_t out_of_bag_rows = 0;  ///< that some tree has not drawn
  MSGPACK_DEFINE(trees, centre, out_of_bag.loss, out_of_bag.accuracy, out_of_bag_rows)
};

/// How often a row is drawn, given the mean; at most 65535. `attempt`: of drawing the tree's rows, from 0.
std::uint16_t times_drawn(std::uint64_t seed, std::uint64_t tree, std::uint64_t attempt, std::uint64_t row,
                          double mean) noexcept;

class random_forest : public tree_base {
 public:
  using settings_type = random_forest_settings;

  random_forest(Comm comm, const std::string& server_info, const random_forest_settings& settings);

 private:
  void train() override;
  void read_model(const std::string& where) override;
  [[nodiscard]] const forest& trees() const override { return model_.trees; }
  /// The mean of the trees.
  [[nodiscard]] std::vector<double> scores(const sample_rows& rows) const override;
  void to_predictions(std::vector<double>&) const override {}  // the scores are predictions
  /// The name of the out-of-bag error, and the value shown.
  [[nodiscard]] const char* log_name() const { return classifies() ? "oob_accuracy" : "oob_rmse"; }
  [[nodiscard]] double shown(const boosting_quality& q) const { return classifies() ? q.accuracy : std::sqrt(q.loss); }
  /// Grows the trees. A collective.
  [[nodiscard]] bagged_trees bag(run_log& log);
  /// The mean of targets that are far from 0 for their spread, otherwise 0. A collective.
  [[nodiscard]] double centre_of_targets(collectives& all) const;
  /// How often each of this worker's rows is drawn for a tree. `few`: so few draws are expected of all rows that there
  /// may be none. A collective.
  [[nodiscard]] std::vector<std::uint16_t> draws(collectives& all, std::uint64_t tree, double scale, bool few) const;
  /// The error by the trees so far. A collective.
  void measure_out_of_bag(collectives& all, const std::vector<double>& votes, const std::vector<double>& voters,
                          bagged_trees& to) const;
  void write_model();

  random_forest_settings settings_;
  bagged_trees model_;
};

}  // namespace paracel::alg
