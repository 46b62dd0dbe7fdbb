// SPDX-License-Identifier: BSD-3-Clause
#include "gbdt.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/free_memory.hpp>
#include <paracel/metrics.hpp>
#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

#include "alg/common/output/divergence.hpp"
#include "host_functions.hpp"

namespace paracel::alg {

namespace {

// Streams of random numbers; the rows and features of tree t have their own.
constexpr std::uint64_t row_stream = 0x726f77;
constexpr std::uint64_t feature_stream = 0x66656174;

constexpr double greatest_margin = 1e30;

constexpr auto of_python = ", want none: it names a function of an estimator in Python, which calls it";
constexpr auto needs_groups = ": loss lambdamart needs the field with the rows' groups";

/// Features that a tree may test: a share of all, at least one.
std::vector<std::uint32_t> sampled_features(std::uint64_t seed, std::uint64_t tree, std::size_t columns, double share) {
  std::vector<std::uint32_t> features(columns);
  std::iota(features.begin(), features.end(), 0U);
  const auto count =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(share * static_cast<double>(columns))));
  if (count >= columns) return features;
  counter_random(seed, feature_stream, tree).shuffle(features);
  features.resize(count);
  std::ranges::sort(features);
  return features;
}

/// Rows of this worker that a tree is grown from, ascending.
std::vector<std::uint32_t> sampled_rows(std::uint64_t seed, std::uint64_t tree, const sample_rows& rows, double share) {
  std::vector<std::uint32_t> sample;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    if (counter_random(seed, row_stream + tree, rows.first_row + i).uniform() < share)
      sample.push_back(static_cast<std::uint32_t>(i));
  }
  return sample;
}

/// Adds the trees of the last round to the margins of rows.
void add_last_trees(const forest& trees, const sample_rows& rows, std::span<double> margins) {
  const auto k = trees.outputs;
  for (std::size_t t = trees.trees() - k; t < trees.trees(); ++t) {
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      const auto& leaf = trees.node[trees.tree_begin[t] + trees.leaf_of(t, rows.float_row(i))];
      margins[i * k + t % k] += static_cast<double>(trees.value[leaf.leaf]);
    }
  }
}

}  // namespace

void gbdt_settings::keys(key_list& k) {
  tree_settings::keys(k, true);
  k.files("validation_input", validation_input, "labelled rows whose loss is computed each round, for early_stopping");
  k("loss", loss, "squared: for numbers; log: for two classes; softmax: for more; lambdamart: for rankings",
    boosting_losses)
      .required_unless({"model", "initial_model"});
  k("objective", objective, "name of an objective in Python in place of the loss; set by its estimators");
  k("eval_metric", eval_metric,
    "name of a metric in Python in place of the loss of validation_input; set by its estimators");
  k("first_margin", first_margin,
    "margin of every row before the first tree; default: squared: the mean, log: the log odds, otherwise 0");
  k("truncation", truncation,
    "lambdamart: at least one row of each pair is among this many top-ranked rows of its group")
      .at_least(1)
      .at_most(2147483647);
  k("ndcg_at", ndcg_at, "lambdamart: positions of a group that NDCG counts; 0: all").at_least(0).at_most(2147483647);
  k("rounds", rounds, "maximum number of rounds, besides those of initial_model").at_least(1).at_most(1000000);
  k("rate", rate, "learning rate: factor of each tree").above(0).at_most(1);
  k("growth", grower.leaf_wise, "leaf: the leaf that gains most is split next; depth: level by level",
    {{"leaf", true}, {"depth", false}});
  k("max_leaves", grower.max_leaves, "maximum number of leaves of a tree; 0: no limit; default with growth depth: 0")
      .at_least(0)
      .at_most(1 << 20);
  k("max_depth", grower.max_depth,
    "maximum number of splits between root and leaf; 0: no limit; default with growth depth: 6")
      .at_least(0)
      .at_most(1000);
  k("lambda", grower.lambda, "L2 penalty of the leaves").at_least(0);
  k("gamma", grower.gamma, "a split must gain more than this").at_least(0);
  k("min_child_weight", grower.min_child_weight, "minimum sum of second derivatives in a child").at_least(0);
  k("min_child_rows", grower.min_child_rows, "minimum number of rows in a child").at_least(1).at_most(2147483647);
  k("subsample", subsample, "share of the rows that a round uses").above(0).at_most(1);
  k("colsample", colsample, "share of the features that a tree uses").above(0).at_most(1);
  k("one_hot_at_most", grower.one_hot_at_most,
    "with up to this many categories in a node, a split is one against all others")
      .at_least(0)
      .at_most(255);
  k("early_stopping", early_stopping, "stop when this many rounds have not improved the validation loss; 0: never")
      .at_least(0)
      .at_most(1000000);
  k("training_curve", training_curve, "also write the training loss of each round");
  k("xgboost", xgboost, "also write the model in XGBoost's JSON format; of a model that is read only if true is given");
}

void gbdt_settings::check(const config& from) {
  group_place = from.place_of("group");
  loss_place = place_if_given(from, "loss");
  if (!grower.leaf_wise && !from.given("max_leaves")) grower.max_leaves = 0;
  if (!grower.leaf_wise && !from.given("max_depth")) grower.max_depth = 6;
  if (grower.max_leaves == 0 && grower.max_depth == 0)
    throw config_error(from.place_of("max_leaves") +
                       ": found 0, and no max_depth either, want a limit for at least one of them");
  if (grower.max_leaves == 1) throw config_error(from.place_of("max_leaves") + ": found 1, want 0, or 2 or more");
  if (loss == boosting_loss::lambdamart && table.samples.group.empty()) throw config_error(group_place + needs_groups);
  if (early_stopping > 0 && validation_input.empty())
    throw config_error(from.place_of("early_stopping") + ": needs validation_input, whose loss it monitors");
  if (!model.empty() && !from.given("xgboost")) xgboost = false;
  if (first_margin && !(std::abs(*first_margin) <= greatest_margin))
    throw config_error(from.place_of("first_margin") + ": found " + json_number(*first_margin) +
                       ", want at most 1e30: leaves are single-precision numbers");
  if (first_margin && initial.given())
    throw config_error(from.place_of("first_margin") + ": not with initial_model, which has one");
  check_host_functions(from);
  if (!model.empty() && !validation_input.empty())
    throw config_error(from.place_of("validation_input") + ": not with a model; want test_input to evaluate it");
}

void gbdt_settings::check_host_functions(const config& from) const {
  const auto& host = host_functions::current();
  if (!objective.empty() && !host.objective)
    throw config_error(from.place_of("objective") + ": found \"" + objective + "\"" + of_python);
  if (!eval_metric.empty() && !host.metric)
    throw config_error(from.place_of("eval_metric") + ": found \"" + eval_metric + "\"" + of_python);
  if (!eval_metric.empty() && validation_input.empty())
    throw config_error(from.place_of("eval_metric") + ": needs validation_input, which it measures");
  if (objective.empty()) return;
  if (!validation_input.empty() && eval_metric.empty())
    throw config_error(from.place_of("validation_input") + ": with an objective of your own it needs eval_metric");
  if (!test_input.empty())
    throw config_error(from.place_of("test_input") + ": not with an objective of your own, whose value is unknown");
  if (training_curve)
    throw config_error(from.place_of("training_curve") + ": not with an objective of your own, whose value is unknown");
}

gbdt::gbdt(Comm comm, const std::string& server_info, const gbdt_settings& settings)
    : tree_base(std::move(comm), server_info, settings, settings.rounds), settings_(settings) {
  ndcg_at_ = settings.ndcg_at;
}

double gbdt::loss_of(collectives& all, const sample_rows& rows, std::optional<ranking_groups>& groups,
                     std::vector<double> margins) const {
  if (groups) return -groups->ndcg(all, margins, ndcg_at_);
  alg::to_predictions(loss(), margins, outputs());
  return quality_of(all, loss(), labels_of(rows), margins, outputs()).loss;
}

double gbdt::validation_loss(collectives& all, std::optional<ranking_groups>& groups,
                             const std::vector<double>& margins) const {
  if (!own_metric()) return loss_of(all, validation_, groups, margins);
  auto predictions = margins;
  to_predictions(predictions);
  // The same for any number of workers, as its rows are not added up.
  const auto labels = all.all_gather(std::span<const double>(validation_.label), "validation labels");
  predictions = all.all_gather(std::span<const double>(predictions), "validation predictions");
  std::vector<double> value(1);
  if (get_worker_id() == 0) value[0] = host_functions::current().metric(labels, predictions, outputs());
  all.broadcast(value, 0, "metric");
  return value[0];
}

void gbdt::own_derivatives(std::span<const double> margins, std::vector<double>& first,
                           std::vector<double>& second) const {
  const auto k = outputs();
  first.resize(margins.size());
  second.resize(margins.size());
  host_functions::current().objective(training_.label, margins, k, first, second);
  const auto rows = labels_of(training_);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double w = rows.weight_of(i / k);
    first[i] *= w;
    second[i] = w * std::max(second[i], least_curvature_of_loss);
  }
}

/// Throws: error when margins have diverged. Losses do not show it: their logarithms are limited. With squared errors
/// they cannot, as a tree moves margins towards the targets.
void gbdt::check_margins(int round, std::span<const double> margins, double first) const {
  if (loss() == boosting_loss::squared && !raw()) return;
  double most = 0;
  for (const double m : margins) {
    if (!(std::abs(m) <= most)) most = std::abs(m);
    if (!std::isfinite(m)) break;
  }
  // The scale of an objective that is not ours is unknown.
  check_divergence(
      {"a margin", "lower rate (now " + json_number(settings_.rate) + ") or raise lambda", raw() ? 0.0 : 1}, round,
      most, raw() ? 0 : first);
}

boosted_trees gbdt::boost(run_log& log) {
  collectives all(get_comm());
  const auto k = outputs();
  const int rounds_before = initial_rounds();
  const int last_round = rounds_before + settings_.rounds;
  const bool validates = !settings_.validation_input.empty();
  const auto& file = linear_.training_input.front();
  check_sizes(all, training_.weight, "weight", file);
  if (loss() == boosting_loss::squared) check_sizes(all, training_.label, "target", file);
  std::optional<ranking_groups> groups;
  std::optional<ranking_groups> validation_groups;
  if (ranks()) groups.emplace(all, labels_of(training_), training_.group);
  if (ranks() && validates) validation_groups.emplace(all, labels_of(validation_), validation_.group);
  if (settings_.first_margin) model_.first_margin = *settings_.first_margin;
  else if (rounds_before == 0) model_.first_margin = raw() ? 0 : first_margin(all, loss(), labels_of(training_));
  auto margins = sums(training_, model_.first_margin);
  auto validation_margins = sums(validation_, model_.first_margin);
  const auto bins = make_bins(all, training_, settings_.max_bins);
  const auto rows = to_bins(training_, bins);
  free_memory(training_.floats);  // from here on only the bins are used
  tree_grower grower(rows, bins, training_.rows_total, settings_.grower);
  std::vector<double> first_derivative(rows.rows);
  std::vector<double> second_derivative(rows.rows);
  std::vector<double> predictions;
  std::vector<double> own_first;  // of all outputs
  std::vector<double> own_second;

  auto model = model_;
  model.trees.features = training_.columns;
  model.trees.outputs = k;
  model.validation = std::numeric_limits<double>::infinity();
  if (rounds_before > 0 && settings_.early_stopping > 0) {  // no later round may be better
    model.rounds = model.best_round = rounds_before;
    if (!raw()) model.training = loss_of(all, training_, groups, margins);
    model.validation = validation_loss(all, validation_groups, validation_margins);
  }
  resumable_loop loop(*this);
  loop.keep("model", model).keep("margins", margins).keep("validation margins", validation_margins);
  while (loop.next(settings_.rounds)) {
    const double begin = log.seconds();
    const auto round = static_cast<std::uint64_t>(rounds_before + loop.iteration());
    model.rounds = static_cast<int>(round) + 1;
    if (raw()) {
      own_derivatives(margins, own_first, own_second);
    } else {
      predictions = margins;
      alg::to_predictions(loss(), predictions, k);
    }
    std::vector<std::uint32_t> sample;
    if (settings_.subsample < 1) sample = sampled_rows(settings_.seed, round, training_, settings_.subsample);
    for (std::size_t output = 0; output < k; ++output) {
      if (raw()) {
        for (std::size_t i = 0; i < first_derivative.size(); ++i) {
          first_derivative[i] = own_first[i * k + output];
          second_derivative[i] = own_second[i * k + output];
        }
      } else if (groups) {
        groups->derivatives(all, margins, settings_.truncation, first_derivative, second_derivative);
      } else {
        derivatives(loss(), labels_of(training_), predictions, k, output, first_derivative, second_derivative);
      }
      grower.set_gradients(all, first_derivative, second_derivative);
      const auto tree = model.trees.trees();
      grower.grow(all, model.trees, sample, settings_.subsample >= 1,
                  sampled_features(settings_.seed, tree, training_.columns, settings_.colsample), settings_.rate);
      grower.add_values(model.trees, std::span(margins).subspan(output), k);
    }
    check_margins(model.rounds, margins, model.first_margin);

    std::vector<double> losses;  // tracked ones, as shown
    if (validates) {
      add_last_trees(model.trees, validation_, validation_margins);
      const double value = validation_loss(all, validation_groups, validation_margins);
      losses.push_back(shown_validation(value));
      if (value < model.validation) {
        model.validation = value;
        model.best_round = model.rounds;
      }
    }
    if (settings_.early_stopping == 0) model.best_round = model.rounds;
    // The loss of the trees that would be kept, if this round may be the best or last one.
    const bool kept = model.best_round == model.rounds && (settings_.early_stopping > 0 || model.rounds == last_round);
    if ((kept && !raw()) || settings_.training_curve) {
      const double value = loss_of(all, training_, groups, margins);
      if (settings_.training_curve) losses.push_back(shown(value));
      if (kept) model.training = value;
    }
    run_log::figures more;
    if (losses.size() == 2) more.emplace_back(training_name(), losses[1]);
    log.round(model.rounds, losses.empty() ? log.seconds() - begin : losses[0], more);
    if (settings_.early_stopping > 0 && model.rounds - model.best_round >= settings_.early_stopping) loop.stop();
  }
  model.trees.keep_trees(static_cast<std::size_t>(model.best_round) * k);
  return model;
}

void gbdt::train() {
  if (linear_.initial.given())
    want_as_in_model(settings_.loss_place, word_of(boosting_losses, settings_.loss), word_of(boosting_losses, loss()));
  else set_loss(settings_.loss);
  if (linear_.initial.given() && raw() != !settings_.objective.empty())
    throw data_error(linear_.initial.path + ": found a model trained with " + (raw() ? "an" : "no") +
                     " objective of your own, want one like this run's");
  set_raw(!settings_.objective.empty());
  if (ranks() && samples().group.empty()) throw config_error(settings_.group_place + needs_groups);
  if (loss() == boosting_loss::log) load_rows(2, "loss log; softmax is for more");
  else load_rows(most_classes, "loss softmax");
  if (!settings_.validation_input.empty()) validation_ = with_offsets(load_validation(settings_.validation_input));
  const char* const followed = !settings_.validation_input.empty() ? validation_name()
                               : settings_.training_curve          ? training_name()
                                                                   : "round_seconds";
  run_log log(*this, initial_rounds() + settings_.rounds, followed, linear_.debug);
  model_ = boost(log);
  write_model();
  if (!raw()) log.result(training_name(), shown(model_.training));
  if (!settings_.validation_input.empty()) log.result(validation_name(), shown_validation(model_.validation));
  log.result("rounds", static_cast<std::uint64_t>(model_.rounds));
  log.result("trees", std::uint64_t{trees().trees()});
  use(log);
}

void gbdt::read_model(const std::string& where) {
  const model_reader from(where, "gbdt");
  set_loss(from.field("settings.loss", boosting_losses));
  set_raw(!from.field<std::string>("settings.objective", "").empty());
  if (raw() && has_test())
    throw config_error(where +
                       ": found a model with an objective of its own, whose value is unknown, want predict_input " +
                       "instead of test_input");
  if (raw() && settings_.xgboost && !linear_.model.empty())
    throw config_error(
        where +
        ": found a model with an objective of its own, which XGBoost does not have: want \"xgboost\": " + "false");
  model_.trees = forest::read(from, where);
  model_.first_margin = from.field<double>("first_margin");
  if (ranks() && has_test() && samples().group.empty())
    throw config_error(settings_.group_place +
                       ": test_input needs the field with the rows' groups, as the model's loss is lambdamart");
  read_classes(from, where);
  if (!linear_.model.empty()) write_xgboost();
}

void gbdt::write_model() {
  model_writer to(*this, "gbdt", linear_.format);
  trees().write(to);
  if (!raw()) to.fields().add(ranks() ? training_name() : "loss", ranks() ? shown(model_.training) : model_.training);
  to.fields()
      .add("first_margin", model_.first_margin)
      .add("rows", training_.rows_total)
      .add("rounds", model_.best_round);
  describe(to);
  if (linear_.initial.given()) to.settings().add("loss", word_of(boosting_losses, loss()));
  if (!settings_.validation_input.empty())
    to.fields().add(own_metric() || ranks() ? validation_name() : "validate_loss",
                    own_metric() || ranks() ? shown_validation(model_.validation) : model_.validation);
  to.finish();
  write_importance();
  write_xgboost();
}

void gbdt::write_xgboost() {
  if (settings_.xgboost && !raw() && get_worker_id() == 0)
    write_text_file(paracel_result("xgboost.json"), xgboost_json(trees(), form()));
}

xgboost_form gbdt::form() const {
  xgboost_form form;
  form.names = names();
  const auto features = trees().features;
  for (std::size_t c = 0; !offsets().empty() && c < features; ++c) form.offset.push_back(offsets().of(c));
  form.categorical.assign(features, false);
  for (const auto& [c, some] : words()) form.categorical[c] = true;
  form.base_score = model_.first_margin;
  form.objective = "reg:squarederror";
  if (loss() == boosting_loss::log) {
    form.objective = "binary:logistic";
    form.base_score = logistic(model_.first_margin);
  }
  if (loss() == boosting_loss::softmax) {
    form.objective = "multi:softprob";
    form.classes = classes().size();
  }
  if (ranks()) form.objective = "rank:ndcg";
  return form;
}

}  // namespace paracel::alg
