// SPDX-License-Identifier: BSD-3-Clause
//
// What linear models and trees share: inputs, prediction lines, and model files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/paralg.hpp>
#include <paracel/samples.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"
#include "design_matrix.hpp"
#include "table.hpp"

namespace paracel::alg {

struct linear_settings {
  /// `alias`: whether Paracel's name `input` is accepted for training_input, too.
  /// Throws: config_error when there is neither training_input nor a model, or both.
  void keys(key_list& k, sample_options::label_rule label = sample_options::label_rule::real,
            const table_parts& parts = {}, bool alias = true);

  std::vector<std::string> training_input;
  std::vector<std::string> test_input;
  std::vector<std::string> predict_input;
  std::string output;
  std::string model;
  initial_model initial;  ///< of programs that call its `key`
  result_format format = result_format::text;
  table_settings table;
  bool debug = false;
};

/// A line of predict_input with its prediction: CSV `feature,...,feature:prediction`, libsvm
/// `prediction index:value ...`.
std::string prediction_line(const sample_rows& rows, std::size_t i, const std::string& prediction);
std::string prediction_line(const sample_rows& rows, std::size_t i, double prediction);

/// Base class of algorithms that predict labels of samples.
class linear_base : public paralg {
 public:
  linear_base(Comm comm, const std::string& server_info, const linear_settings& settings, int rounds,
              const consistency& reads = consistency::bsp());

 protected:
  /// The training samples. `squares`: whether the method adds up squares of columns (check_squares).
  /// Throws: data_error when they have no features.
  [[nodiscard]] sample_rows load_training(bool squares = true);
  /// The weights of a saved model, the intercept first, which is 0 without a `bias`; reads what the model keeps of its
  /// training samples, too.
  [[nodiscard]] std::vector<double> read_weights(const model_reader& model, const std::string& array, bool bias = true);
  /// The weights of the initial model, of `program`; load_training then loads rows of its features. Empty: there is
  /// none. `bias_place`: of the key bias, which must be as in the model; empty: there is no such key.
  [[nodiscard]] std::vector<double> read_initial_weights(const std::string& program, const std::string& array,
                                                         bool bias = true, const std::string& bias_place = {});
  /// Loads test_input and predict_input, whose fields are those of the training samples; call it before training, so
  /// that bad data is reported early.
  void load_others();
  /// Loads held-out rows. Throws: data_error for a class that the training rows do not have.
  [[nodiscard]] sample_rows load_validation(const std::vector<std::string>& names);
  /// Adds the names and fields of the training samples to a manifest.
  void describe_fields(model_writer& model) const { add_fields(model, samples()); }
  /// How samples are read.
  [[nodiscard]] sample_options& samples() noexcept { return linear_.table.samples; }
  [[nodiscard]] const sample_options& samples() const noexcept { return linear_.table.samples; }
  [[nodiscard]] bool has_test() const noexcept { return !linear_.test_input.empty(); }
  /// Writes pred_v_<rank>, with `prediction(row of predict_input)`; nothing without predict_input.
  template <class F>
  void dump_predictions(F&& prediction) {
    if (linear_.predict_input.empty()) return;
    std::vector<std::string> lines(predict_.rows());
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = prediction_line(predict_, i, prediction(i));
    paracel_dump_vector(lines, "pred_v_", "\n");
  }

  linear_settings linear_;
  sample_rows test_;
  sample_rows predict_;
};

}  // namespace paracel::alg
