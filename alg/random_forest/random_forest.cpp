// SPDX-License-Identifier: BSD-3-Clause
#include "random_forest.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <paracel/free_memory.hpp>
#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

namespace paracel::alg {

namespace {

constexpr std::uint64_t draw_stream = 0x64726177;
constexpr double greatest_weight = 500;  // e^-500 is not 0
// Targets whose mean exceeds their greatest deviation from it by this factor are moved to 0. Closer ones are as exact
// as they are, and leaves of numbers that are floats remain so.
constexpr double offset_limit = 16;
constexpr double certain_draws = 700;  // if so many are expected, e^-700 is the probability of none

}  // namespace

namespace {

constexpr choices<boosting_loss> types = {{"classification", boosting_loss::softmax},
                                          {"regression", boosting_loss::squared}};

}  // namespace

void random_forest_settings::keys(key_list& k) {
  tree_settings::keys(k, false);
  k("type", loss, "classification: labels are classes; regression: labels are numbers", types)
      .required_unless({"model", "initial_model"});
  k("trees", trees, "number of trees, besides those of initial_model").at_least(1).at_most(100000);
  k("features_per_split", bagging.features, "features tested in a node; 0: sqrt(d), for regression d / 3").at_least(0);
  k("max_depth", bagging.max_depth, "maximum number of splits between root and leaf; 0: no limit")
      .at_least(0)
      .at_most(1000);
  k("min_split", bagging.min_split, "minimum number of sampled rows in a node that is split")
      .at_least(2)
      .at_most(2147483647);
  k("min_leaf", bagging.min_leaf, "minimum number of sampled rows in a leaf").at_least(1).at_most(2147483647);
  k("bootstrap", bootstrap, "sample the rows of each tree with replacement; false: every tree uses every row once");
}

void random_forest_settings::check(const config& from) {
  bagging.seed = seed;
  type_place = place_if_given(from, "type");
  if (!bootstrap && (!table.samples.weight.empty() || !table.row_weights.empty() || table.of_classes.given()))
    throw config_error(from.place_of("bootstrap") +
                       ": found false, want true with weights, which are how often a row is drawn");
}

std::uint16_t times_drawn(std::uint64_t seed, std::uint64_t tree, std::uint64_t attempt, std::uint64_t row,
                          double mean) noexcept {
  // The inverse of the distribution function.
  double left = counter_random(seed, draw_stream + tree + (attempt << 32U), row).uniform();
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
    : tree_base(std::move(comm), server_info, settings, settings.trees), settings_(settings) {}

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
    for (std::size_t c = 0; c < k; ++c) found.push_back(to.centre + votes[i * k + c] / voters[i]);
  }
  auto rows = static_cast<std::int64_t>(label.size());
  all.all_reduce(std::span<std::int64_t>(&rows, 1), reduce_op::sum, "rows out of bag");
  to.out_of_bag_rows = static_cast<std::uint64_t>(rows);
  if (rows > 0) to.out_of_bag = quality_of(all, loss(), {label, weight, training_.rows_total}, found, k);
}

double random_forest::centre_of_targets(collectives& all) const {
  if (classifies()) return 0;
  check_sizes(all, training_.label, "target", linear_.training_input.front());
  const double mean = first_margin(all, loss(), labels_of(training_));
  std::vector<double> away(training_.label);
  for (auto& y : away) y -= mean;
  const double spread = greatest_value(all, away, "deviations");
  return std::abs(mean) > offset_limit * spread ? mean : 0;
}

std::vector<std::uint16_t> random_forest::draws(collectives& all, std::uint64_t tree, double scale, bool few) const {
  std::vector<std::uint16_t> times(training_.rows(), 1);
  if (!settings_.bootstrap) return times;
  for (std::uint64_t attempt = 0;; ++attempt) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double mean = training_.weight.empty() ? 1.0 : scale * training_.weight[i];
      times[i] = times_drawn(settings_.bagging.seed, tree, attempt, training_.first_row + i, mean);
      sum += times[i];
    }
    if (!few) return times;
    all.all_reduce(std::span<std::int64_t>(&sum, 1), reduce_op::sum, "draws");
    if (sum > 0) return times;
  }
}

bagged_trees random_forest::bag(run_log& log) {
  collectives all(get_comm());
  const auto k = outputs();
  const auto bins = make_bins(all, training_, settings_.max_bins);
  const auto rows = to_bins(training_, bins);
  free_memory(training_.floats);  // from here on only the bins are used
  auto how = settings_.bagging;
  how.classes = classifies() ? k : 0;
  if (how.features == 0) {
    const auto d = static_cast<double>(training_.columns);
    how.features = static_cast<std::size_t>(std::max(1L, std::lround(classifies() ? std::sqrt(d) : d / 3)));
  }
  auto expected = static_cast<double>(training_.rows_total);
  double scale = 1;
  if (!training_.weight.empty()) {
    const double heaviest = greatest_value(all, training_.weight, "weights");
    const double sum = exact_sum(all, training_.weight, training_.rows_total, "weights");
    auto some = static_cast<std::int64_t>(std::ranges::count_if(training_.weight, [](double w) { return w > 0; }));
    all.all_reduce(std::span<std::int64_t>(&some, 1), reduce_op::sum, "rows with a weight");
    if (!(sum > 0)) throw data_error(linear_.training_input.front() + ": found no row with a weight above 0");
    scale = std::clamp(static_cast<double>(some) / sum, 1.0, greatest_weight / heaviest);
    expected = scale * sum;
  }
  const bool few = expected < certain_draws;
  const auto trees_before = static_cast<std::int64_t>(trees().trees());
  const double centre = trees_before > 0 ? model_.centre : centre_of_targets(all);
  auto label = training_.label;
  for (auto& y : label) y -= centre;
  bagged_grower grower(all, rows, bins, label, static_cast<std::uint64_t>(std::ceil(expected)), how);

  auto model = model_;
  model.centre = centre;
  model.trees.features = training_.columns;
  model.trees.width = k;
  std::vector<double> votes(rows.rows * k);
  std::vector<double> voters(rows.rows);
  resumable_loop loop(*this);
  loop.keep("model", model).keep("votes", votes).keep("voters", voters);
  while (loop.next(settings_.trees)) {
    const double begin = log.seconds();
    const auto tree = static_cast<std::uint64_t>(trees_before + loop.iteration());
    const int number = static_cast<int>(tree) + 1;
    const auto times = draws(all, tree, scale, few);
    auto& trees = model.trees;
    grower.grow(all, trees, times, tree);
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] > 0) continue;
      const auto& leaf = trees.node[trees.tree_begin[tree] + grower.leaf_of_row(trees, i)];
      for (std::size_t v = 0; v < k; ++v) votes[i * k + v] += static_cast<double>(trees.value[leaf.leaf * k + v]);
      voters[i] += 1;
    }
    if (linear_.debug || number == trees_before + settings_.trees) measure_out_of_bag(all, votes, voters, model);
    const bool measured = linear_.debug && model.out_of_bag_rows > 0;
    log.round(number, measured ? shown(model.out_of_bag) : log.seconds() - begin);
  }
  return model;
}

std::vector<double> random_forest::scores(const sample_rows& rows) const {
  auto out = sums(rows, 0);
  for (auto& v : out) v = model_.centre + v / static_cast<double>(trees().trees());
  return out;
}

void random_forest::train() {
  if (linear_.initial.given())
    want_as_in_model(settings_.type_place, word_of(types, settings_.loss), word_of(types, loss()));
  else set_loss(settings_.loss);
  load_rows(most_classes, "classification");
  collectives all(get_comm());
  if (greatest_value(all, training_.weight, "weights") > greatest_weight)
    throw data_error(linear_.training_input.front() +
                     ": found a weight above 500, want at most that many draws of a row");
  run_log log(*this, static_cast<int>(trees().trees()) + settings_.trees, linear_.debug ? log_name() : "round_seconds",
              linear_.debug);
  model_ = bag(log);
  write_model();
  log.result("trees", std::uint64_t{trees().trees()});
  log.result("nodes", std::uint64_t{trees().node.size()});
  log.result("oob_rows", model_.out_of_bag_rows);
  if (model_.out_of_bag_rows > 0) log.result(log_name(), shown(model_.out_of_bag));
  use(log);
}

void random_forest::read_model(const std::string& where) {
  const model_reader from(where, "random_forest");
  set_loss(from.field("settings.type", types));
  model_.trees = forest::read(from, where);
  model_.centre = from.field<double>("centre", 0);  // models of earlier versions have none
  read_classes(from, where);
}

void random_forest::write_model() {
  model_writer to(*this, "random_forest", linear_.format);
  trees().write(to);
  to.fields().add("rows", training_.rows_total).add("oob_rows", model_.out_of_bag_rows);
  if (!classifies()) to.fields().add("centre", model_.centre);
  describe(to);
  if (linear_.initial.given()) to.settings().add("type", word_of(types, loss()));
  if (model_.out_of_bag_rows > 0) to.fields().add(log_name(), shown(model_.out_of_bag));
  to.finish();
  write_importance();
}

}  // namespace paracel::alg
