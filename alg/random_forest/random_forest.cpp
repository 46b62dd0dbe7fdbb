// SPDX-License-Identifier: BSD-3-Clause
#include "random_forest.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <paracel/random.hpp>

#include "alg/common/classification.hpp"
#include "alg/gbdt/tree_output.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint64_t draw_stream = 0x64726177;
constexpr double greatest_weight = 500;  // e^-500 is not 0

}  // namespace

config_schema random_forest_schema() {
  config_schema s("random_forest", "random forests of classification and regression trees");
  s.key("training_input", key_type::files, "rows to train on, CSV, libsvm or npy; not with model")
      .required_unless({"model"});
  s.key("test_input", key_type::files, "labelled rows to measure the model on");
  s.key("predict_input", key_type::files, "rows to predict, with or without a label");
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.add_output_files();
  s.key("model", key_type::files, "folder or manifest of a model: only test and predict with it");
  s.key("format", key_type::string, "of the results: text, or npy").fallback("text").one_of({"text", "npy"});
  add_table_keys(s);
  s.key("type", key_type::string, "what the labels are: classes, or numbers")
      .one_of({"classification", "regression"})
      .required_unless({"model"});
  s.key("trees", key_type::integer, "number of trees").fallback(100).at_least(1).at_most(100000);
  s.key("features_per_split", key_type::integer, "features tested in a node; 0: sqrt(d), of numbers d / 3")
      .fallback(0)
      .at_least(0);
  s.key("max_depth", key_type::integer, "splits between root and leaf; 0: no limit")
      .fallback(0)
      .at_least(0)
      .at_most(1000);
  s.key("min_split", key_type::integer, "drawn rows of a node that is split")
      .fallback(2)
      .at_least(2)
      .at_most(2147483647);
  s.key("min_leaf", key_type::integer, "drawn rows of a leaf").fallback(1).at_least(1).at_most(2147483647);
  s.key("bootstrap", key_type::boolean, "draw rows; false: every tree has every row once").fallback(true);
  s.key("max_bins", key_type::integer, "bins of a feature").fallback(255).at_least(2).at_most(255);
  s.key("leaves", key_type::boolean, "write the leaf of each row of predict_input in each tree").fallback(false);
  s.key("seed", key_type::integer, "of the draws").fallback(0).at_least(0);
  s.key("debug", key_type::boolean, "print the out-of-bag error of each tree").fallback(false);
  return s;
}

random_forest_settings::random_forest_settings(const config& from)
    : training_input(from.get<std::vector<std::string>>("training_input")),
      test_input(from.get<std::vector<std::string>>("test_input")),
      predict_input(from.get<std::vector<std::string>>("predict_input")),
      output(from.get<std::string>("output")),
      model(model_of(from)),
      format(from.get<std::string>("format")),
      table(table_options_of(from)),
      type(from.get<std::string>("type")),
      trees(from.get<int>("trees")),
      bootstrap(from.get<bool>("bootstrap")),
      max_bins(from.get<std::size_t>("max_bins")),
      leaves(from.get<bool>("leaves")),
      debug(from.get<bool>("debug")) {
  bagging.features = from.get<std::size_t>("features_per_split");
  bagging.max_depth = from.get<std::size_t>("max_depth");
  bagging.min_split = from.get<std::int64_t>("min_split");
  bagging.min_leaf = from.get<std::int64_t>("min_leaf");
  bagging.seed = from.get<std::uint64_t>("seed");
  if (!training_input.empty() && !model.empty())
    throw config_error(from.place_of("model") + ": not with training_input, which makes a model of its own");
  if (!bootstrap && !table.weight.empty())
    throw config_error(from.place_of("bootstrap") +
                       ": found false, want true with weight, which is how often a row is drawn");
}

std::uint16_t times_drawn(std::uint64_t seed, std::uint64_t tree, std::uint64_t row, double mean) noexcept {
  // The inverse of the distribution function.
  double left = counter_random(seed, draw_stream + tree, row).uniform();
  double p = std::exp(-mean);
  std::uint16_t times = 0;
  while (left >= p && times < 65535 && (p > 0 || times < mean)) {
    left -= p;
    ++times;
    p *= mean / times;
    if (p < 1e-20 && times > mean) break;
  }
  return times;
}

random_forest::random_forest(Comm comm, const std::string& server_info, const random_forest_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.trees), settings_(settings) {}

void random_forest::solve() {
  if (settings_.model.empty()) train();
  else use_model();
}

void random_forest::load_others() {
  auto how = settings_.table;
  how.words = classifies();
  how.classes = classes_;
  how.columns = columns_;
  how.names = names_;
  if (!settings_.test_input.empty()) test_ = load_table(get_comm(), settings_.test_input, how);
  how.without_label = true;
  if (!settings_.predict_input.empty()) predict_ = load_table(get_comm(), settings_.predict_input, how);
}

void random_forest::measure_out_of_bag(collectives& all, const std::vector<double>& votes,
                                       const std::vector<double>& voters, bagged_trees& to) const {
  const auto k = outputs();
  std::vector<double> label;
  std::vector<double> weight;
  std::vector<double> found;
  for (std::size_t i = 0; i < voters.size(); ++i) {
    if (voters[i] == 0) continue;
    label.push_back(training_.label[i]);
    if (!training_.weight.empty()) weight.push_back(training_.weight[i]);
    for (std::size_t c = 0; c < k; ++c) found.push_back(votes[i * k + c] / voters[i]);
  }
  auto rows = static_cast<std::int64_t>(label.size());
  all.all_reduce(std::span<std::int64_t>(&rows, 1), reduce_op::sum, "rows out of bag");
  to.out_of_bag_rows = static_cast<std::uint64_t>(rows);
  if (rows > 0) to.out_of_bag = quality_of(all, loss(), {label, weight, training_.rows_total}, found, k);
}

/// The trees: a superstep each.
bagged_trees random_forest::bag(run_log& log) {
  collectives outside(get_comm());
  const auto k = outputs();
  const auto bins = make_bins(outside, training_, settings_.max_bins);
  const auto rows = to_bins(training_, bins);
  training_.value = {};  // from here on only the bins are used
  auto how = settings_.bagging;
  how.classes = classifies() ? k : 0;
  if (how.features == 0) {
    const auto d = static_cast<double>(columns_);
    how.features = static_cast<std::size_t>(std::max(1L, std::lround(classifies() ? std::sqrt(d) : d / 3)));
  }
  const double heaviest = std::max(1.0, greatest_value(outside, training_.weight, "weights"));
  const auto most_draws = training_.rows_total * static_cast<std::uint64_t>(std::ceil(heaviest));
  bagged_grower grower(outside, rows, bins, training_.label, most_draws, how);

  com_queue q(*this);
  q.add([&](com_context& c) {
    if (c.step_no() > 1) return;
    bagged_trees start;
    start.trees.features = columns_;
    start.trees.width = k;
    c.put_obj("model", std::move(start));
    c.put_obj("votes", std::vector<double>(rows.rows * k));
    c.put_obj("voters", std::vector<double>(rows.rows));
  });
  q.add(communicate([&](com_context& c, collectives& all) {
    auto& model = c.get_obj<bagged_trees>("model");
    auto& votes = c.get_obj<std::vector<double>>("votes");
    auto& voters = c.get_obj<std::vector<double>>("voters");
    const auto tree = static_cast<std::uint64_t>(c.step_no()) - 1;
    std::vector<std::uint16_t> draws(rows.rows, 1);
    for (std::size_t i = 0; settings_.bootstrap && i < draws.size(); ++i) {
      const double mean = training_.weight.empty() ? 1.0 : training_.weight[i];
      draws[i] = times_drawn(how.seed, tree, training_.first_row + i, mean);
    }
    auto& trees = model.trees;
    grower.grow(all, trees, draws, tree);
    for (std::size_t i = 0; i < draws.size(); ++i) {
      if (draws[i] > 0) continue;
      const auto& leaf = trees.node[trees.tree_begin[tree] + grower.leaf_of_row(trees, i)];
      for (std::size_t v = 0; v < k; ++v) votes[i * k + v] += static_cast<double>(trees.value[leaf.leaf * k + v]);
      voters[i] += 1;
    }
    if (settings_.debug || c.step_no() == settings_.trees) measure_out_of_bag(all, votes, voters, model);
    if (settings_.debug && model.out_of_bag_rows > 0)
      c.set_metric(log_name(), classifies() ? model.out_of_bag.accuracy : std::sqrt(model.out_of_bag.loss));
  }));
  q.set_watch(
      [&](const superstep_report& r) { log.round(r.step, r.metrics.empty() ? r.seconds : r.metrics[0].second); });
  q.set_max_iter(settings_.trees);
  q.close_with([](com_context& c) { return c.get_obj<bagged_trees>("model"); });
  return q.exec<bagged_trees>();
}

std::vector<double> random_forest::predictions(const table_rows& rows, const forest& trees) const {
  const auto k = outputs();
  std::vector<double> out(rows.rows * k);
  for (std::size_t i = 0; i < rows.rows; ++i) trees.add_to(rows.row(i), std::span(out).subspan(i * k, k));
  for (auto& v : out) v /= static_cast<double>(trees.trees());
  return out;
}

void random_forest::train() {
  auto how = settings_.table;
  how.words = classifies();
  training_ = load_table(get_comm(), settings_.training_input, how);
  classes_ = training_.classes;
  names_ = training_.names;
  columns_ = training_.columns;
  if (classifies() && (classes_.size() < 2 || classes_.size() > most_classes)) {
    throw data_error(settings_.training_input.front() + ": found " + std::to_string(classes_.size()) +
                     (classes_.size() == 1 ? " class" : " classes") + ", want 2 to " + std::to_string(most_classes) +
                     " with classification");
  }
  collectives all(get_comm());
  if (greatest_value(all, training_.weight, "weights") > greatest_weight)
    throw data_error(settings_.training_input.front() +
                     ": found a weight above 500, want at most that many draws of a row");
  load_others();
  run_log log(*this, settings_.trees, settings_.debug ? log_name() : "round_seconds", settings_.debug);
  const auto model = bag(log);
  write_model(model);
  log.result("trees", std::uint64_t{model.trees.trees()});
  log.result("nodes", std::uint64_t{model.trees.node.size()});
  log.result("oob_rows", model.out_of_bag_rows);
  if (model.out_of_bag_rows > 0)
    log.result(log_name(), classifies() ? model.out_of_bag.accuracy : std::sqrt(model.out_of_bag.loss));
  test(model.trees, log);
  write_predictions(model.trees);
  log.result("output", get_output());
}

void random_forest::use_model() {
  const model_reader from(settings_.model, "random_forest");
  settings_.type = from.field<std::string>("settings.type");
  classes_ = from.list<std::string>("classes");
  names_ = from.list<std::string>("names");
  const auto trees = forest::read(from, settings_.model);
  columns_ = trees.features;
  if (trees.width != outputs() || trees.trees() == 0 || (classifies() && classes_.size() < 2) ||
      (!names_.empty() && names_.size() != columns_))
    throw data_error(settings_.model + ": found classes, names and trees that do not fit one another");
  load_others();
  run_log log(*this, 0, "round_seconds", settings_.debug);
  log.result("trees", std::uint64_t{trees.trees()});
  test(trees, log);
  write_predictions(trees);
  log.result("output", get_output());
}

void random_forest::test(const forest& trees, run_log& log) {
  if (settings_.test_input.empty()) return;
  const auto found = predictions(test_, trees);
  const auto k = outputs();
  if (classifies() && k == 2) {
    std::vector<double> margin(test_.rows);
    std::vector<double> sign(test_.rows);
    for (std::size_t i = 0; i < sign.size(); ++i) {
      margin[i] = found[2 * i + 1];
      sign[i] = test_.label[i] == 1 ? 1 : -1;
    }
    log.result("auc", quality_over_workers(get_comm(), margin, sign).auc);
  }
  collectives all(get_comm());
  const auto quality = quality_of(all, loss(), {test_.label, test_.weight, test_.rows_total}, found, k);
  if (!classifies()) {
    log.result("rmse", std::sqrt(quality.loss));
    return;
  }
  log.result("accuracy", quality.accuracy);
  log.result("log_loss", quality.loss);
}

void random_forest::write_model(const bagged_trees& model) {
  model_writer to(*this, "random_forest", settings_.format);
  model.trees.write(to);
  to.fields()
      .add("rows", training_.rows_total)
      .add("oob_rows", model.out_of_bag_rows)
      .raw("classes", json_strings(classes_))
      .raw("names", json_strings(names_));
  if (model.out_of_bag_rows > 0)
    to.fields().add(log_name(), classifies() ? model.out_of_bag.accuracy : std::sqrt(model.out_of_bag.loss));
  to.finish();
  if (get_worker_id() == 0) write_text_file(paracel_result("importance"), importance_text(model.trees, names_));
}

void random_forest::write_predictions(const forest& trees) {
  if (settings_.predict_input.empty()) return;
  const auto k = outputs();
  const auto found = predictions(predict_, trees);
  std::vector<std::string> lines(predict_.rows);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (classifies()) lines[i] = class_line(classes_, std::span(found).subspan(i * k, k));
    else append_text(lines[i], found[i]);
  }
  paracel_dump_vector(lines, "pred_v_", "\n");
  if (settings_.leaves) paracel_dump_vector(leaf_lines(trees, predict_), "leaves_", "\n");
}

}  // namespace paracel::alg
