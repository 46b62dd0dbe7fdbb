// SPDX-License-Identifier: BSD-3-Clause
#include "linear_base.hpp"

#include <utility>

#include <paracel/text_output.hpp>

#include "column_shift.hpp"

namespace paracel::alg {

void linear_settings::keys(key_list& k, sample_options::label_rule label, const table_parts& parts, bool alias) {
  auto& training = k.files("training_input", training_input, "samples to train on, CSV, libsvm or npy; not with model");
  std::vector<std::string> input;
  if (alias) {
    training.required_unless({"input", "model"});
    k.files("input", input, "Paracel's name for training_input");
  } else {
    training.required_unless({"model"});
  }
  k.files("test_input", test_input, "labelled samples to evaluate the model on");
  k.files("predict_input", predict_input, "samples to predict, with or without a label");
  output_keys(k, output);
  model_key(k, model, "folder or manifest of a model: only test and predict with it");
  format_key(k, format, "format of the results: Paracel's text, or npy");
  k("debug", debug, "print the objective of each round");
  table.samples.label = label;
  table.keys(k, parts);
  if (k.from() == nullptr) return;
  if (alias && k.from()->given("input")) {
    if (k.from()->given("training_input"))
      throw config_error(k.from()->place_of("input") + ": not together with training_input, which means the same");
    training_input = std::move(input);
  }
  if (!training_input.empty() && !model.empty())
    throw config_error(k.from()->place_of("model") + ": not with training_input, which trains a model of its own");
}

std::string prediction_line(const sample_rows& rows, std::size_t i, double prediction) {
  std::string text;
  append_text(text, prediction);
  return prediction_line(rows, i, text);
}

std::string prediction_line(const sample_rows& rows, std::size_t i, const std::string& prediction) {
  std::string line;
  if (rows.dense) {
    for (const double x : rows.dense_row(i)) {
      if (!line.empty()) line += ',';
      append_text(line, x);
    }
    line += ':';
    line += prediction;
    return line;
  }
  line += prediction;
  const auto columns = rows.columns_of(i);
  const auto values = rows.values_of(i);
  for (std::size_t k = 0; k < columns.size(); ++k) {
    line += ' ';
    append_text(line, std::uint64_t{columns[k]} + 1);
    line += ':';
    append_text(line, values[k]);
  }
  return line;
}

linear_base::linear_base(Comm comm, const std::string& server_info, const linear_settings& settings, int rounds,
                         const consistency& reads)
    : paralg(server_info, std::move(comm), settings.output, rounds, reads), linear_(settings) {}

sample_rows linear_base::load_training(bool squares) {
  auto rows = load_training_table(get_comm(), linear_.training_input, linear_.table);
  const auto& file = linear_.training_input.front();
  if (squares) check_squares(get_comm(), rows, file);
  if (squares && samples().label == sample_options::label_rule::real) check_target_squares(get_comm(), rows, file);
  return rows;
}

std::vector<double> linear_base::read_weights(const model_reader& model, const std::string& array, bool bias) {
  auto weights = model.read_finite(array);
  if (weights.size() < (bias ? 2U : 1U)) throw data_error(model.path() + ": found no weights");
  if (!bias) weights.insert(weights.begin(), 0.0);
  if (weights.size() - 1 > samples().index_limit)
    throw data_error(model.path() + ": found " + std::to_string(weights.size() - 1) + " weights, want at most " +
                     std::to_string(samples().index_limit));
  if (model.has_field("classes")) samples().classes = model.fields<std::string>("classes");
  read_fields(model, static_cast<std::uint32_t>(weights.size() - 1), linear_.table);
  return weights;
}

std::vector<double> linear_base::read_initial_weights(const std::string& program, const std::string& array, bool bias,
                                                      const std::string& bias_place) {
  if (!linear_.initial.given()) return {};
  const model_reader model(linear_.initial.path, program);
  if (!bias_place.empty()) want_as_in_model(bias_place, bias, model.field<bool>("settings.bias"));
  return read_weights(model, array, bias);
}

sample_rows linear_base::load_validation(const std::vector<std::string>& names) {
  return load_samples(get_comm(), names, samples());
}

void linear_base::load_others() {
  if (!linear_.test_input.empty()) test_ = load_validation(linear_.test_input);
  if (linear_.predict_input.empty()) return;
  auto options = samples();
  options.without_label = true;
  predict_ = load_samples(get_comm(), linear_.predict_input, options);
}

}  // namespace paracel::alg
