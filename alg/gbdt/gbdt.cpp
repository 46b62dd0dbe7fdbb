// SPDX-License-Identifier: BSD-3-Clause
#include "gbdt.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/random.hpp>

#include "alg/common/classification.hpp"
#include "tree_output.hpp"

namespace paracel::alg {

namespace {

// Streams of random numbers; the rows and features of tree t have their own.
constexpr std::uint64_t row_stream = 0x726f77;
constexpr std::uint64_t feature_stream = 0x66656174;

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

/// Rows of this worker that count in a tree, ascending.
std::vector<std::uint32_t> sampled_rows(std::uint64_t seed, std::uint64_t tree, const table_rows& rows, double share) {
  std::vector<std::uint32_t> sample;
  for (std::size_t i = 0; i < rows.rows; ++i) {
    if (counter_random(seed, row_stream + tree, rows.first_row + i).uniform() < share)
      sample.push_back(static_cast<std::uint32_t>(i));
  }
  return sample;
}

labelled_rows labels_of(const table_rows& t) { return {t.label, t.weight, t.rows_total}; }

}  // namespace

config_schema gbdt_schema() {
  config_schema s("gbdt", "gradient-boosted decision trees");
  s.key("training_input", key_type::files, "rows to train on, CSV, libsvm or npy; not with model")
      .required_unless({"model"});
  s.key("validation_input", key_type::files, "labelled rows whose loss is followed, for early_stopping");
  s.key("test_input", key_type::files, "labelled rows to measure the model on");
  s.key("predict_input", key_type::files, "rows to predict, with or without a label");
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.add_output_files();
  s.key("model", key_type::files, "folder or manifest of a model: only test and predict with it");
  s.key("format", key_type::string, "of the results: text, or npy").fallback("text").one_of({"text", "npy"});
  add_table_keys(s);
  s.key("loss", key_type::string, "squared: of numbers; log: of two classes; softmax: of more")
      .one_of({"squared", "log", "softmax"})
      .required_unless({"model"});
  s.key("rounds", key_type::integer, "rounds at most").fallback(100).at_least(1).at_most(1000000);
  s.key("rate", key_type::number, "factor of each tree").fallback(0.1).above(0).at_most(1);
  s.key("growth", key_type::string, "leaf: the leaf that gains most is split next; depth: level by level")
      .fallback("leaf")
      .one_of({"leaf", "depth"});
  s.key("max_leaves", key_type::integer, "leaves of a tree; 0: no limit; default: 31, with growth by depth 0")
      .fallback(31)
      .at_least(0)
      .at_most(1 << 20);
  s.key("max_depth", key_type::integer, "splits between root and leaf; 0: no limit; default: 0, with growth by depth 6")
      .fallback(0)
      .at_least(0)
      .at_most(1000);
  s.key("lambda", key_type::number, "L2 penalty of the leaves").fallback(1.0).at_least(0);
  s.key("gamma", key_type::number, "what a split must gain").fallback(0.0).at_least(0);
  s.key("min_child_weight", key_type::number, "sum of second derivatives of a child").fallback(1e-3).at_least(0);
  s.key("min_child_rows", key_type::integer, "rows of a child").fallback(20).at_least(1).at_most(2147483647);
  s.key("subsample", key_type::number, "share of the rows that a round uses").fallback(1.0).above(0).at_most(1);
  s.key("colsample", key_type::number, "share of the features that a tree uses").fallback(1.0).above(0).at_most(1);
  s.key("max_bins", key_type::integer, "bins of a feature").fallback(255).at_least(2).at_most(255);
  s.key("one_hot_at_most", key_type::integer, "categories up to which a split is one against all others")
      .fallback(4)
      .at_least(0)
      .at_most(255);
  s.key("early_stopping", key_type::integer, "stop when so many rounds have not improved the validation loss; 0: never")
      .fallback(0)
      .at_least(0)
      .at_most(1000000);
  s.key("training_curve", key_type::boolean, "write the training loss of each round, too").fallback(false);
  s.key("leaves", key_type::boolean, "write the leaf of each row of predict_input in each tree").fallback(false);
  s.key("xgboost", key_type::boolean, "write the model in XGBoost's JSON form, too").fallback(true);
  s.key("seed", key_type::integer, "of the samples").fallback(0).at_least(0);
  s.key("debug", key_type::boolean, "print the loss of each round").fallback(false);
  return s;
}

gbdt_settings::gbdt_settings(const config& from)
    : training_input(from.get<std::vector<std::string>>("training_input")),
      validation_input(from.get<std::vector<std::string>>("validation_input")),
      test_input(from.get<std::vector<std::string>>("test_input")),
      predict_input(from.get<std::vector<std::string>>("predict_input")),
      output(from.get<std::string>("output")),
      model(model_of(from)),
      format(from.get<std::string>("format")),
      table(table_options_of(from)),
      loss(from.get<std::string>("loss")),
      rounds(from.get<int>("rounds")),
      rate(from.get<double>("rate")),
      subsample(from.get<double>("subsample")),
      colsample(from.get<double>("colsample")),
      max_bins(from.get<std::size_t>("max_bins")),
      early_stopping(from.get<int>("early_stopping")),
      training_curve(from.get<bool>("training_curve")),
      leaves(from.get<bool>("leaves")),
      xgboost(from.get<bool>("xgboost")),
      debug(from.get<bool>("debug")),
      seed(from.get<std::uint64_t>("seed")) {
  grower.leaf_wise = from.get<std::string>("growth") == "leaf";
  grower.max_leaves = from.get<std::size_t>("max_leaves");
  grower.max_depth = from.get<std::size_t>("max_depth");
  if (!grower.leaf_wise && !from.given("max_leaves")) grower.max_leaves = 0;
  if (!grower.leaf_wise && !from.given("max_depth")) grower.max_depth = 6;
  if (grower.max_leaves == 0 && grower.max_depth == 0)
    throw config_error(from.place_of("max_leaves") + ": found 0, and no max_depth either, want a limit of one of them");
  if (grower.max_leaves == 1) throw config_error(from.place_of("max_leaves") + ": found 1, want 0, or 2 or more");
  grower.lambda = from.get<double>("lambda");
  grower.gamma = from.get<double>("gamma");
  grower.min_child_weight = from.get<double>("min_child_weight");
  grower.min_child_rows = from.get<std::int64_t>("min_child_rows");
  grower.one_hot_at_most = from.get<std::size_t>("one_hot_at_most");
  if (!training_input.empty() && !model.empty())
    throw config_error(from.place_of("model") + ": not with training_input, which makes a model of its own");
  if (early_stopping > 0 && validation_input.empty())
    throw config_error(from.place_of("early_stopping") + ": needs validation_input, whose loss it looks at");
  if (!model.empty() && !validation_input.empty())
    throw config_error(from.place_of("validation_input") + ": not with a model; test_input measures it");
}

gbdt::gbdt(Comm comm, const std::string& server_info, const gbdt_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds), settings_(settings) {}

void gbdt::solve() {
  if (settings_.model.empty()) train();
  else use_model();
}

/// The other inputs, with what is known of the training rows.
void gbdt::load_others() {
  auto how = settings_.table;
  how.words = loss_ != boosting_loss::squared;
  how.classes = classes_;
  how.columns = columns_;
  how.names = names_;
  const auto load = [&](const std::vector<std::string>& files, table_rows& to) {
    if (!files.empty()) to = load_table(get_comm(), files, how);
  };
  load(settings_.validation_input, validation_);
  load(settings_.test_input, test_);
  how.without_label = true;
  load(settings_.predict_input, predict_);
}

/// The rounds: a superstep each.
boosted_trees gbdt::boost(run_log& log) {
  const auto k = outputs();
  const auto first = [&] {
    collectives all(get_comm());
    return std::pair(make_bins(all, training_, settings_.max_bins), first_margin(all, loss_, labels_of(training_)));
  }();
  const auto& bins = first.first;
  const auto rows = to_bins(training_, bins);
  training_.value = {};  // from here on only the bins are used
  tree_grower grower(rows, bins, training_.rows_total, settings_.grower);
  std::vector<double> first_derivative(training_.rows);
  std::vector<double> second_derivative(training_.rows);
  std::vector<double> predictions;
  const bool validates = !settings_.validation_input.empty();

  com_queue q(*this);
  q.add([&](com_context& c) {
    if (c.step_no() > 1) return;
    boosted_trees start;
    start.first_margin = first.second;
    start.trees.features = columns_;
    start.trees.outputs = k;
    start.validation = std::numeric_limits<double>::infinity();
    c.put_obj("model", std::move(start));
    c.put_obj("margins", std::vector<double>(training_.rows * k, first.second));
    c.put_obj("validation margins", std::vector<double>(validation_.rows * k, first.second));
  });
  q.add(communicate([&](com_context& c, collectives& all) {
    auto& model = c.get_obj<boosted_trees>("model");
    auto& margins = c.get_obj<std::vector<double>>("margins");
    predictions = margins;
    to_predictions(loss_, predictions, k);
    const auto round = static_cast<std::uint64_t>(c.step_no()) - 1;
    std::vector<std::uint32_t> sample;
    if (settings_.subsample < 1) sample = sampled_rows(settings_.seed, round, training_, settings_.subsample);
    for (std::size_t output = 0; output < k; ++output) {
      derivatives(loss_, labels_of(training_), predictions, k, output, first_derivative, second_derivative);
      grower.set_gradients(all, first_derivative, second_derivative);
      const auto tree = model.trees.trees();
      grower.grow(all, model.trees, sample, settings_.subsample >= 1,
                  sampled_features(settings_.seed, tree, columns_, settings_.colsample), settings_.rate);
      grower.add_values(model.trees, std::span(margins).subspan(output), k);
    }
    model.rounds = c.step_no();
  }));
  if (validates) {
    q.add(communicate([&](com_context& c, collectives& all) {
      auto& model = c.get_obj<boosted_trees>("model");
      auto& margins = c.get_obj<std::vector<double>>("validation margins");
      for (std::size_t t = model.trees.trees() - k; t < model.trees.trees(); ++t) {
        for (std::size_t i = 0; i < validation_.rows; ++i) {
          const auto leaf = model.trees.leaf_of(t, validation_.row(i));
          margins[i * k + t % k] +=
              static_cast<double>(model.trees.value[model.trees.node[model.trees.tree_begin[t] + leaf].leaf]);
        }
      }
      auto found = margins;
      to_predictions(loss_, found, k);
      const double loss = quality_of(all, loss_, labels_of(validation_), found, k).loss;
      c.set_metric(validation_name(), shown(loss));
      if (loss < model.validation) {
        model.validation = loss;
        model.best_round = model.rounds;
      }
    }));
  }
  q.add(communicate([&](com_context& c, collectives& all) {
    auto& model = c.get_obj<boosted_trees>("model");
    if (settings_.early_stopping == 0) model.best_round = model.rounds;
    // Of the trees that are kept, if these may be the last ones.
    const bool kept =
        model.best_round == model.rounds && (settings_.early_stopping > 0 || model.rounds == settings_.rounds);
    if (!kept && !settings_.training_curve) return;
    predictions = c.get_obj<std::vector<double>>("margins");
    to_predictions(loss_, predictions, k);
    const double loss = quality_of(all, loss_, labels_of(training_), predictions, k).loss;
    if (settings_.training_curve) c.set_metric(training_name(), shown(loss));
    if (kept) model.training = loss;
  }));
  // A line of metrics has the loss that is followed, if one is.
  q.set_watch([&](const superstep_report& r) {
    if (r.metrics.empty()) log.round(r.step, r.seconds);
    else if (r.metrics.size() == 1) log.round(r.step, r.metrics[0].second);
    else log.round(r.step, r.metrics[0].second, {{training_name(), r.metrics[1].second}});
  });
  q.set_compare_criterion_of_node0([&](com_context& c) {
    const auto& model = c.get_obj<boosted_trees>("model");
    return settings_.early_stopping > 0 && model.rounds - model.best_round >= settings_.early_stopping;
  });
  q.set_max_iter(settings_.rounds);
  q.close_with([&](com_context& c) {
    auto model = c.get_obj<boosted_trees>("model");
    model.trees.keep_trees(static_cast<std::size_t>(model.best_round) * k);
    return model;
  });
  return q.exec<boosted_trees>();
}

std::vector<double> gbdt::margins(const table_rows& rows, const boosted_trees& model) const {
  const auto k = outputs();
  std::vector<double> out(rows.rows * k, model.first_margin);
  for (std::size_t i = 0; i < rows.rows; ++i) model.trees.add_to(rows.row(i), std::span(out).subspan(i * k, k));
  return out;
}

void gbdt::train() {
  loss_ = boosting_loss_of(settings_.loss);
  auto how = settings_.table;
  how.words = loss_ != boosting_loss::squared;
  training_ = load_table(get_comm(), settings_.training_input, how);
  classes_ = training_.classes;
  names_ = training_.names;
  categorical_ = training_.categorical;
  columns_ = training_.columns;
  const auto found = std::to_string(classes_.size()) + (classes_.size() == 1 ? " class" : " classes");
  if (loss_ == boosting_loss::log && classes_.size() != 2)
    throw data_error(settings_.training_input.front() + ": found " + found + ", want two with loss log" +
                     (classes_.size() > 2 ? "; softmax is for more" : ""));
  if (loss_ == boosting_loss::softmax && (classes_.size() < 2 || classes_.size() > most_classes))
    throw data_error(settings_.training_input.front() + ": found " + found + ", want 2 to " +
                     std::to_string(most_classes) + " with loss softmax");
  load_others();
  const char* const followed = !settings_.validation_input.empty() ? validation_name()
                               : settings_.training_curve          ? training_name()
                                                                   : "round_seconds";
  run_log log(*this, settings_.rounds, followed, settings_.debug);
  const auto model = boost(log);
  write_model(model);
  log.result(training_name(), shown(model.training));
  if (!settings_.validation_input.empty()) log.result(validation_name(), shown(model.validation));
  log.result("rounds", static_cast<std::uint64_t>(model.rounds));
  log.result("trees", std::uint64_t{model.trees.trees()});
  test(model, log);
  write_predictions(model);
  log.result("output", get_output());
}

void gbdt::use_model() {
  const model_reader from(settings_.model, "gbdt");
  loss_ = boosting_loss_of(from.field<std::string>("settings.loss"));
  classes_ = from.list<std::string>("classes");
  names_ = from.list<std::string>("names");
  boosted_trees model;
  model.trees = forest::read(from, settings_.model);
  model.first_margin = from.field<double>("first_margin");
  columns_ = model.trees.features;
  const bool fits = loss_ == boosting_loss::squared
                        ? classes_.empty()
                        : classes_.size() >= 2 && (loss_ == boosting_loss::softmax || classes_.size() == 2);
  if (!fits || model.trees.outputs != outputs() || model.trees.width != 1 ||
      (!names_.empty() && names_.size() != columns_))
    throw data_error(settings_.model + ": found classes, names and trees that do not fit one another");
  load_others();
  run_log log(*this, 0, "loss", settings_.debug);
  log.result("trees", std::uint64_t{model.trees.trees()});
  test(model, log);
  write_predictions(model);
  log.result("output", get_output());
}

void gbdt::test(const boosted_trees& model, run_log& log) {
  if (settings_.test_input.empty()) return;
  collectives all(get_comm());
  auto found = margins(test_, model);
  if (loss_ == boosting_loss::log) {
    std::vector<double> sign(test_.rows);
    for (std::size_t i = 0; i < sign.size(); ++i) sign[i] = test_.label[i] == 1 ? 1 : -1;
    log.result("auc", quality_over_workers(get_comm(), found, sign).auc);
  }
  to_predictions(loss_, found, outputs());
  const auto quality = quality_of(all, loss_, labels_of(test_), found, outputs());
  if (loss_ == boosting_loss::squared) {
    log.result("rmse", std::sqrt(quality.loss));
    return;
  }
  log.result("accuracy", quality.accuracy);
  log.result("log_loss", quality.loss);
}

void gbdt::write_model(const boosted_trees& model) {
  model_writer to(*this, "gbdt", settings_.format);
  model.trees.write(to);
  to.fields()
      .add("loss", model.training)
      .add("first_margin", model.first_margin)
      .add("rows", training_.rows_total)
      .add("rounds", model.best_round)
      .raw("classes", json_strings(classes_))
      .raw("names", json_strings(names_));
  if (!settings_.validation_input.empty()) to.fields().add("validate_loss", model.validation);
  to.finish();
  if (get_worker_id() != 0) return;
  write_text_file(paracel_result("importance"), importance_text(model.trees, names_));
  if (!settings_.xgboost) return;
  xgboost_form form;
  form.names = names_;
  form.categorical = categorical_;
  form.base_score = model.first_margin;
  form.objective = "reg:squarederror";
  if (loss_ == boosting_loss::log) {
    form.objective = "binary:logistic";
    form.base_score = logistic(model.first_margin);
  }
  if (loss_ == boosting_loss::softmax) {
    form.objective = "multi:softprob";
    form.classes = classes_.size();
  }
  write_text_file(paracel_result("xgboost.json"), xgboost_json(model.trees, form));
}

void gbdt::write_predictions(const boosted_trees& model) {
  if (settings_.predict_input.empty()) return;
  const auto k = outputs();
  auto found = margins(predict_, model);
  to_predictions(loss_, found, k);
  std::vector<std::string> lines(predict_.rows);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (loss_ == boosting_loss::squared) append_text(lines[i], found[i]);
    else if (loss_ == boosting_loss::log) lines[i] = class_line(classes_, std::vector{1 - found[i], found[i]});
    else lines[i] = class_line(classes_, std::span(found).subspan(i * k, k));
  }
  paracel_dump_vector(lines, "pred_v_", "\n");
  if (!settings_.leaves) return;
  paracel_dump_vector(leaf_lines(model.trees, predict_), "leaves_", "\n");
}

}  // namespace paracel::alg
