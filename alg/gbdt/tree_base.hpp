// SPDX-License-Identifier: BSD-3-Clause
//
// What gbdt and random_forest share: their inputs, which may have missing values, weights and categories, the classes,
// the quality of predictions, and what is written besides the trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <paracel/samples.hpp>

#include "alg/common/solvers/linear_base.hpp"
#include "column_offsets.hpp"
#include "forest.hpp"
#include "gbdt_loss.hpp"

namespace paracel::alg {

inline constexpr std::size_t most_classes = 1000;

struct tree_settings : linear_settings {
  /// `groups`: also the key group. Throws: config_error.
  void keys(key_list& k, bool groups);

  std::size_t max_bins = 255;
  bool leaves = false;
  std::uint64_t seed = 0;
};

/// Labels and weights of samples, for losses.
inline labelled_rows labels_of(const sample_rows& rows) { return {rows.label, rows.weight, rows.rows_total}; }

/// A program that predicts with trees. Samples are dense, of floats.
class tree_base : public linear_base {
 public:
  tree_base(Comm comm, const std::string& server_info, const tree_settings& settings, int rounds);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; config_error.
  void solve() override;

 protected:
  /// Trains; trees() and what else read_model sets are those of the initial model, if there is one.
  virtual void train() = 0;
  /// Reads a model that is in the folder or manifest `where`: trees, loss, and what read_classes reads.
  virtual void read_model(const std::string& where) = 0;
  [[nodiscard]] virtual const forest& trees() const = 0;
  /// outputs() numbers a row: the output of the trees before to_predictions.
  [[nodiscard]] virtual std::vector<double> scores(const sample_rows& rows) const = 0;
  /// Turns these into a number, the probability of class 1, or the probabilities of all classes.
  virtual void to_predictions(std::vector<double>& scores) const = 0;

  /// Sets what the labels are: numbers, two classes, or more, or relevances.
  void set_loss(boosting_loss loss);
  [[nodiscard]] boosting_loss loss() const noexcept { return loss_; }
  /// Sets whether predictions are the raw scores, because the objective was the host's (host_functions.hpp).
  void set_raw(bool raw) noexcept { raw_ = raw; }
  [[nodiscard]] bool raw() const noexcept { return raw_; }
  [[nodiscard]] bool classifies() const noexcept {
    return loss_ == boosting_loss::log || loss_ == boosting_loss::softmax;
  }
  [[nodiscard]] bool ranks() const noexcept { return loss_ == boosting_loss::lambdamart; }
  [[nodiscard]] std::size_t outputs() const noexcept { return loss_ == boosting_loss::softmax ? classes_.size() : 1; }
  [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return samples().names; }

  /// Of categorical features: their words, or none where categories are integers.
  [[nodiscard]] const std::map<std::uint32_t, std::vector<std::string>>& words() const noexcept { return words_; }

  /// The training samples, then test_input and predict_input. Throws: data_error for one class, or more than `most`;
  /// `with`: the reason, for the message.
  void load_rows(std::size_t most, const std::string& with);
  /// Reads classes, fields, categories and offsets, which must fit trees(). Throws: data_error.
  void read_classes(const model_reader& from, const std::string& where);
  /// The sum of trees() and `first` for each row and output.
  [[nodiscard]] std::vector<double> sums(const sample_rows& rows, double first) const;
  /// Fields of a manifest: classes, categorical, words, and those of describe_fields.
  void describe(model_writer& model) const;
  /// Writes the file importance: a line a feature, the most important one first: name or number, tab, sum of gains,
  /// tab, number of splits. On rank 0.
  void write_importance();
  /// Evaluates the model on test_input, writes the predictions and the last results. A collective.
  void use(run_log& log);

  /// Rows that were loaded after the training rows.
  [[nodiscard]] sample_rows with_offsets(sample_rows rows) const;
  [[nodiscard]] const column_offsets& offsets() const noexcept { return offsets_; }

  sample_rows training_;
  std::size_t ndcg_at_ = 10;  // of test rows that are ranked

 private:
  void read_categories(const model_reader& from, const std::string& where);
  void set_categories();
  void load_for_trees();
  void set_offsets();
  /// From now on rows are loaded as doubles, or as floats.
  void load_exactly(bool exactly = true);
  void test(run_log& log);
  void write_predictions();

  void weigh();

  column_offsets offsets_;
  bool leaves_;
  boosting_loss loss_ = boosting_loss::squared;
  bool raw_ = false;
  std::vector<std::string> classes_;
  std::map<std::uint32_t, std::vector<std::string>> words_;  // of categorical features
};

}  // namespace paracel::alg
