// SPDX-License-Identifier: BSD-3-Clause
#include "class_base.hpp"

#include <algorithm>
#include <cmath>

#include <paracel/collectives.hpp>
#include <paracel/text_output.hpp>

#include "classification.hpp"
#include "sum_over_workers.hpp"

namespace paracel::alg {

void class_settings::keys(key_list& k) {
  linear_settings::keys(k, sample_options::label_rule::classes, {.classes = true});
  k("scores", scores, "also write the score of each class");
}

class_base::class_base(Comm comm, const std::string& server_info, const class_settings& settings, int rounds,
                       const consistency& reads)
    : linear_base(std::move(comm), server_info, settings, rounds, reads), scores_(settings.scores) {}

sample_rows class_base::load_training_classes(std::size_t least, bool squares) {
  auto rows = load_training(squares);
  classes_ = rows.classes;
  if (classes_.size() < least)
    throw data_error(linear_.training_input.front() + ": found only the class " + classes_.front() +
                     ", want at least " + std::to_string(least) + " classes");
  class_rows_.assign(classes_.size(), 0);
  for (const double l : rows.label) ++class_rows_[static_cast<std::size_t>(l)];
  sum_over_workers(get_comm(), class_rows_);
  weigh(rows);
  load_others();
  return rows;
}

void class_base::weigh(sample_rows& rows) {
  weights_ = std::move(rows.weight);
  rows.weight.clear();
  weigh_classes(get_comm(), linear_.table.of_classes, classes_, class_rows_, rows.label, weights_);
}

void class_base::continue_classes(const model_reader& model, std::uint32_t columns) {
  classes_ = model.fields<std::string>("classes");
  if (classes_.empty()) throw data_error(model.path() + ": found no classes");
  samples().classes = classes_;
  read_fields(model, columns, linear_.table);
}

void class_base::read_classes(const model_reader& model, std::uint32_t columns) {
  continue_classes(model, columns);
  load_others();
}

void class_base::use(const scorer& score, bool probabilities, bool margin_of_two, run_log& log, model_writer* model) {
  const std::size_t k = classes_.size();
  std::vector<double> scores(k);
  std::vector<double> sums(4);  // weights, hits, negative log-probabilities, rows
  classification_quality ranked;
  if (has_test()) {
    std::vector<double> margin;
    std::vector<double> sign;
    for (std::size_t i = 0; i < test_.rows(); ++i) {
      score(test_, i, scores);
      const auto label = static_cast<std::size_t>(test_.label[i]);
      const double weight = weight_of_row(test_, i);
      sums[0] += weight;
      sums[1] += greatest_score(scores) == label ? weight : 0;
      if (weight != 0) sums[2] -= weight * scores[label];
      sums[3] += 1;
      if (k != 2) continue;
      margin.push_back(scores[1] - scores[0]);
      sign.push_back(label == 1 ? 1 : -1);
    }
    sum_over_workers(get_comm(), sums);
    if (k == 2) ranked = quality_over_workers(get_comm(), margin, sign, test_.weight);
  }
  if (model != nullptr) {
    if (has_test()) {
      json_object test;
      test.add("rows", static_cast<std::uint64_t>(sums[3])).add("accuracy", sums[1] / sums[0]);
      if (k == 2) test.add("auc", ranked.auc);
      if (probabilities) test.add("log_loss", sums[2] / sums[0]);
      model->fields().raw("test", test.text());
    }
    model->finish();
  }
  if (!linear_.predict_input.empty()) {
    std::vector<std::string> lines(predict_.rows());
    std::vector<std::string> numbers(scores_ ? predict_.rows() : 0);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      score(predict_, i, scores);
      lines[i] = prediction_line(predict_, i, classes_[greatest_score(scores)]);
      if (!scores_) continue;
      if (k == 2 && margin_of_two) {
        append_text(numbers[i], (scores[1] - scores[0]) / 2);
        continue;
      }
      for (std::size_t c = 0; c < k; ++c) {
        if (c > 0) numbers[i] += '|';
        append_text(numbers[i], probabilities ? std::exp(scores[c]) : scores[c]);
      }
    }
    paracel_dump_vector(lines, "pred_v_", "\n");
    if (scores_) paracel_dump_vector(numbers, "score_v_", "\n");
  }
  if (has_test()) {
    log.result("accuracy", sums[1] / sums[0]);
    if (k == 2) log.result("auc", ranked.auc);
    if (probabilities) log.result("log_loss", sums[2] / sums[0]);
  }
  log.result("output", get_output());
}

void class_base::describe(model_writer& model, std::uint64_t rows, std::span<const double> class_rows) const {
  add_classes(model, classes_);
  model.fields().raw("class_rows", json_list(class_rows)).add("rows", rows);
  describe_fields(model);
}

std::size_t greatest_score(std::span<const double> scores) noexcept {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

void to_log_probabilities(std::span<double> scores) noexcept {
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - most);
  const double norm = most + std::log(sum);
  for (auto& s : scores) s -= norm;
}

std::vector<std::string> feature_names(const sample_rows& rows, bool bias) {
  std::vector<std::string> names;
  if (bias) names.emplace_back("bias");
  for (std::uint32_t j = 0; j < rows.columns; ++j) names.push_back(column_label(rows.names, j));
  return names;
}

void add_feature_rows(model_writer& model, Comm comm, const std::string& name, std::span<const double> values,
                      std::size_t width, const std::vector<std::string>& names) {
  const auto own = owned_range_of(names.size(), comm.get_size(), comm.get_rank());
  auto ids = id_list::empty(false);
  for (auto j = own.begin; j < own.end; ++j) ids.push_back(std::string_view(names[j]));
  model.add_rows<double>(name, values.subspan(own.begin * width, (own.end - own.begin) * width), {width}, &ids);
}

}  // namespace paracel::alg
