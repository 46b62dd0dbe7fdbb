// SPDX-License-Identifier: BSD-3-Clause
//
// Base of the classifiers whose labels are two or more classes, numbers or words: inputs, row and class weights,
// held-out rows, predictions and their quality.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/samples.hpp>

#include "alg/common/output/run_log.hpp"
#include "linear_base.hpp"

namespace paracel::alg {

struct class_settings : linear_settings {
  /// Throws: config_error.
  void keys(key_list& k);

  bool scores = false;
};

/// A classifier of classes 0, 1, ..., classes().size() - 1.
class class_base : public linear_base {
 public:
  class_base(Comm comm, const std::string& server_info, const class_settings& settings, int rounds,
             const consistency& reads = consistency::bsp());

 protected:
  /// Writes the score of each class for a row; the greatest one is the prediction, ties go to the first.
  using scorer = std::function<void(const sample_rows& rows, std::size_t i, std::span<double> scores)>;

  /// The training samples; their label is an index into classes(). Throws: data_error also when there are fewer than
  /// `least` classes. Also sets weights(), and loads test_input and predict_input as load_others does.
  sample_rows load_training_classes(std::size_t least, bool squares = true);
  /// Reads the classes of a saved model, and loads the other inputs.
  void read_classes(const model_reader& model, std::uint32_t columns);
  /// Reads the classes and fields of a model that training continues: load_training_classes then loads rows of these.
  void continue_classes(const model_reader& model, std::uint32_t columns);
  [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }
  /// Rows of each class, over all workers.
  [[nodiscard]] const std::vector<double>& class_rows() const noexcept { return class_rows_; }
  /// Weights of this worker's training rows, class weights included; empty: all 1.
  [[nodiscard]] std::vector<double>& weights() noexcept { return weights_; }

  /// Evaluates the model on test_input, writes the manifest if there is a new model, then the predictions and the
  /// results. `probabilities`: scores are log-probabilities, and the log loss is reported too. `margin_of_two`: with
  /// two classes, half the difference of their scores is written. A collective.
  void use(const scorer& score, bool probabilities, bool margin_of_two, run_log& log, model_writer* model);
  /// Adds the classes, their row counts, and the fields of the samples to a manifest.
  void describe(model_writer& model, std::uint64_t rows) const { describe(model, rows, class_rows_); }
  void describe(model_writer& model, std::uint64_t rows, std::span<const double> class_rows) const;

 private:
  void weigh(sample_rows& rows);

  bool scores_;
  std::vector<std::string> classes_;
  std::vector<double> class_rows_;
  std::vector<double> weights_;
};

/// The class of the greatest score, the first of equal ones.
std::size_t greatest_score(std::span<const double> scores) noexcept;
/// Normalises logarithms of unnormalised probabilities to log-probabilities, in place.
void to_log_probabilities(std::span<double> scores) noexcept;

/// `visit(feature, value)` for each entry of a row that is not 0.
template <class F>
void visit_entries(const sample_rows& rows, std::size_t i, F&& visit) {
  if (rows.dense) {
    const auto x = rows.dense_row(i);
    for (std::size_t j = 0; j < x.size(); ++j) {
      if (x[j] != 0) visit(j, x[j]);
    }
    return;
  }
  for (std::size_t k = rows.row_begin[i]; k < rows.row_begin[i + 1]; ++k)
    if (rows.value[k] != 0) visit(std::size_t{rows.column[k]}, rows.value[k]);
}

/// Row ids, in text and .txt files, of a matrix with one row per feature, the bias first if there is one.
std::vector<std::string> feature_names(const sample_rows& rows, bool bias);

/// Adds a matrix with `width` numbers per feature that every worker has in full; each writes a part of the rows.
void add_feature_rows(model_writer& model, Comm comm, const std::string& name, std::span<const double> values,
                      std::size_t width, const std::vector<std::string>& names);

}  // namespace paracel::alg
