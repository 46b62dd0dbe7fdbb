// SPDX-License-Identifier: BSD-3-Clause
#include "tree_base.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <paracel/collectives.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/classification.hpp"
#include "alg/common/solvers/column_shift.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"
#include "ranking.hpp"

namespace paracel::alg {

namespace {

// A limit, because rows of libsvm become dense.
constexpr std::uint64_t most_columns = 1U << 20U;

std::string json_strings(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const auto& i : items) text.append(text.size() > 1 ? "," : "").append(json_quoted(i));
  return text + "]";
}

/// The numbers, separated by |.
std::string joined(std::span<const double> numbers) {
  std::string line;
  for (const double n : numbers) {
    if (!line.empty()) line += '|';
    append_text(line, n);
  }
  return line;
}

/// The most probable class, a tab, and the probabilities of all, separated by |.
std::string class_line(const std::vector<std::string>& classes, std::span<const double> probability) {
  const auto most = std::ranges::max_element(probability) - probability.begin();
  return classes[static_cast<std::size_t>(most)] + '\t' + joined(probability);
}

/// The leaves of each row, as nodes of their trees, separated by |.
std::vector<std::string> leaf_lines(const forest& trees, const sample_rows& rows) {
  std::vector<std::string> lines(rows.rows());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t t = 0; t < trees.trees(); ++t) {
      if (t > 0) lines[i] += '|';
      append_text(lines[i], trees.leaf_of(t, rows.float_row(i)));
    }
  }
  return lines;
}

}  // namespace

void tree_settings::keys(key_list& k, bool groups) {
  linear_settings::keys(k, sample_options::label_rule::real,
                        {.classes = true, .groups = groups, .categories = true, .missing = true});
  initial.key(k, model);
  k("max_bins", max_bins, "maximum number of bins of a feature").at_least(2).at_most(255);
  k("leaves", leaves, "write the leaf of each row of predict_input in each tree");
  k("seed", seed, "seed of the random numbers").at_least(0);
  table.samples.floats = true;
  table.samples.index_limit = most_columns;
}

tree_base::tree_base(Comm comm, const std::string& server_info, const tree_settings& settings, int rounds)
    : linear_base(std::move(comm), server_info, settings, rounds), leaves_(settings.leaves) {}

void tree_base::solve() {
  if (linear_.initial.given()) read_model(linear_.initial.path);
  if (linear_.model.empty()) return train();
  read_model(linear_.model);
  load_for_trees();
  run_log log(*this, 0, "loss", linear_.debug);
  log.result("trees", std::uint64_t{trees().trees()});
  use(log);
}

void tree_base::set_loss(boosting_loss loss) {
  loss_ = loss;
  using rule = sample_options::label_rule;
  samples().label = classifies() ? rule::classes : ranks() ? rule::relevance : rule::real;
}

void tree_base::load_rows(std::size_t most, const std::string& with) {
  training_ = load_training(false);
  classes_ = training_.classes;
  if (linear_.initial.given()) {
    offsets_.widen(training_.columns);
    training_ = with_offsets(std::move(training_));
    weigh();
    return load_for_trees();
  }
  set_offsets();
  words_ = training_.words;
  for (const auto c : training_.categorical) words_.try_emplace(c);
  if (classifies() && (classes_.size() < 2 || classes_.size() > most)) {
    throw data_error(linear_.training_input.front() + ": found " + std::to_string(classes_.size()) +
                     (classes_.size() == 1 ? " class" : " classes") + ", want 2" +
                     (most == 2 ? "" : " to " + std::to_string(most)) + " with " + with);
  }
  weigh();
  set_categories();
  load_for_trees();
}

/// Loads the training rows again if floats hide the differences within a column.
void tree_base::set_offsets() {
  const auto columns = column_offsets::candidates(get_comm(), training_);
  if (columns.empty()) return;
  if (std::ranges::find(linear_.training_input, "-") != linear_.training_input.end()) {
    return warn(get_comm(), "column " + column_name(training_.names, columns.front()) +
                                " is constant, or far from 0 for its spread, of which single-precision numbers show " +
                                "little: subtract an offset, or read it from a file instead of standard input");
  }
  load_exactly();
  training_ = {};  // not both at a time
  training_ = load_training(false);
  offsets_.choose(get_comm(), training_, columns);
  offsets_.apply(training_);
  if (offsets_.empty()) load_exactly(false);  // constant columns
}

void tree_base::load_exactly(bool exactly) { samples().floats = !exactly; }

sample_rows tree_base::with_offsets(sample_rows rows) const {
  if (!offsets_.empty()) offsets_.apply(rows);
  return rows;
}

/// Multiplies the weights of the training rows by those of their classes.
void tree_base::weigh() {
  const auto& of_classes = linear_.table.of_classes;
  if (!of_classes.given()) return;
  if (!classifies()) throw config_error(of_classes.place() + ": only where labels are classes");
  std::vector<double> rows(classes_.size());
  for (const double l : training_.label) ++rows[static_cast<std::size_t>(l)];
  sum_over_workers(get_comm(), rows);
  weigh_classes(get_comm(), of_classes, classes_, rows, training_.label, training_.weight);
}

void tree_base::read_classes(const model_reader& from, const std::string& where) {
  classes_ = from.fields<std::string>("classes");
  const auto& f = trees();
  const bool classes_fit = !classifies()                 ? classes_.empty()
                           : loss_ == boosting_loss::log ? classes_.size() == 2
                                                         : classes_.size() >= 2;
  if (!classes_fit || f.trees() == 0 || f.width * f.outputs != outputs() || f.features > most_columns)
    throw data_error(where + ": found classes and trees that do not match");
  read_categories(from, where);
  offsets_.read(from, f.features, where);
  if (!offsets_.empty()) load_exactly();
  samples().classes = classes_;
  set_categories();
  read_fields(from, static_cast<std::uint32_t>(f.features), linear_.table);
}

void tree_base::read_categories(const model_reader& from, const std::string& where) {
  for (const auto c : from.fields<std::int64_t>("categorical")) {
    if (c < 0 || static_cast<std::size_t>(c) >= trees().features)
      throw data_error(where + ": found categorical feature " + std::to_string(c) + ", want one of " +
                       std::to_string(trees().features));
    words_[static_cast<std::uint32_t>(c)] = from.fields<std::string>("words." + std::to_string(c));
  }
}

/// From now on samples have the categories of the model.
void tree_base::set_categories() {
  samples().words = words_;
  samples().categorical.clear();
}

/// Loads test_input and predict_input.
void tree_base::load_for_trees() {
  load_others();
  test_ = with_offsets(std::move(test_));
  predict_ = with_offsets(std::move(predict_));
}

std::vector<double> tree_base::sums(const sample_rows& rows, double first) const {
  const auto k = outputs();
  std::vector<double> out(rows.rows() * k, first);
  for (std::size_t i = 0; i < rows.rows(); ++i) trees().add_to(rows.float_row(i), std::span(out).subspan(i * k, k));
  return out;
}

void tree_base::describe(model_writer& model) const {
  offsets_.write(model);
  json_object words;
  std::string columns;
  for (const auto& [column, some] : words_) {
    columns.append(columns.empty() ? "" : ",").append(std::to_string(column));
    words.raw(std::to_string(column), json_strings(some));
  }
  model.fields()
      .raw("classes", json_strings(classes_))
      .raw("categorical", "[" + columns + "]")
      .raw("words", words.text());
  describe_fields(model);
}

void tree_base::write_importance() {
  if (get_worker_id() != 0) return;
  std::vector<double> gain;
  std::vector<double> splits;
  trees().importance(gain, splits);
  std::vector<std::size_t> order(trees().features);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return gain[a] > gain[b]; });
  std::string text;
  for (const auto f : order) {
    text += column_label(names(), f);
    text += '\t';
    append_text(text, gain[f]);
    text += '\t';
    append_text(text, splits[f]);
    text += '\n';
  }
  write_text_file(paracel_result("importance"), text);
}

void tree_base::use(run_log& log) {
  if (has_test()) test(log);
  if (!linear_.predict_input.empty()) write_predictions();
  log.result("output", get_output());
}

void tree_base::test(run_log& log) {
  const auto k = outputs();
  auto found = scores(test_);
  auto margin = k == 1 && classifies() ? found : std::vector<double>();
  to_predictions(found);
  if (classes_.size() == 2) {
    std::vector<double> sign(test_.rows());
    if (k == 2) margin.resize(sign.size());
    for (std::size_t i = 0; i < sign.size(); ++i) {
      sign[i] = test_.label[i] == 1 ? 1 : -1;
      if (k == 2) margin[i] = found[2 * i + 1];
    }
    log.result("auc", quality_over_workers(get_comm(), margin, sign, test_.weight).auc);
  }
  collectives all(get_comm());
  if (ranks()) {
    ranking_groups groups(all, labels_of(test_), test_.group);
    return log.result("ndcg", groups.ndcg(all, found, ndcg_at_));
  }
  const auto quality = quality_of(all, loss_, labels_of(test_), found, k);
  if (!classifies()) return log.result("rmse", std::sqrt(quality.loss));
  log.result("accuracy", quality.accuracy);
  log.result("log_loss", quality.loss);
}

void tree_base::write_predictions() {
  const auto k = outputs();
  auto found = scores(predict_);
  to_predictions(found);
  std::vector<std::string> lines(predict_.rows());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (raw()) lines[i] = joined(std::span(found).subspan(i * k, k));
    else if (!classifies()) append_text(lines[i], found[i]);
    else if (k == 1) lines[i] = class_line(classes_, std::vector{1 - found[i], found[i]});
    else lines[i] = class_line(classes_, std::span(found).subspan(i * k, k));
  }
  paracel_dump_vector(lines, "pred_v_", "\n");
  if (leaves_) paracel_dump_vector(leaf_lines(trees(), predict_), "leaves_", "\n");
}

}  // namespace paracel::alg
