// SPDX-License-Identifier: BSD-3-Clause
#include "lr.hpp"

#include <algorithm>
#include <iostream>
#include <numbers>
#include <numeric>

#include <paracel/optim_losses.hpp>
#include <paracel/random.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/server_state.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/linear_base.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Keys in the servers.
constexpr const char* theta_key = "theta";
constexpr const char* stop_key = "lr_stop";
std::string round_key(int round) { return "lr_round_" + std::to_string(round); }

// The sums of a round are computed by the framework's function, whatever the user's update_func does to theta.
constexpr const char* default_plugin = "libparacel_default.so";
constexpr const char* default_add = "paracel_add";

std::string text_of(double v) {
  std::string s;
  append_text(s, v);
  return s;
}

constexpr choices<lr_method> lr_methods = {{"dgd", lr_method::dgd},           {"ipm", lr_method::ipm},
                                           {"downpour", lr_method::downpour}, {"agd", lr_method::agd},
                                           {"lbfgs", lr_method::lbfgs},       {"newton", lr_method::newton},
                                           {"owlqn", lr_method::owlqn}};

}  // namespace

const char* lr_settings::method_name() const { return word_of(lr_methods, method); }

void lr_settings::keys(key_list& k) {
  k.files("training_input", training_input, "samples to train on, CSV, libsvm or npy; not with model")
      .required_unless({"model"});
  k.files("test_input", test_input, "labelled samples to evaluate the model on");
  k.files("predict_input", predict_input, "samples to predict, with or without a label");
  output_keys(k, output);
  model_key(k, model, "folder or manifest of a model: only test and predict with it");
  format_key(k, format, "format of the results: Paracel's text, or npy");
  k.plugin("update_file", update_file, "plug-in that applies a delta to theta; default: the framework's");
  k("update_func", update_func, "function of update_file; default lr_theta_update, without update_file paracel_add");
  k("method", method, "training method", lr_methods).required_unless({"model"});
  k("gradient", sums_gradients, "dgd: alpha multiplies the mean of the samples' gradients, or, as in 0.3, the sum",
    {{"mean", false}, {"sum", true}});
  k("rounds", rounds, "passes over the data; lbfgs, newton, owlqn: maximum number of steps")
      .at_least(1)
      .at_most(1000000000)
      .required_unless({"model"});
  k("alpha", alpha, "step size; not for lbfgs, newton, owlqn").above(0);
  k("decay", decay, "the step size of round k = 0, 1, ... is alpha/(1 + decay*k)").at_least(0);
  k("beta", beta, "weight of the penalty beta*|theta|^2").at_least(0).required_unless({"model"});
  k("l1", l1, "owlqn: weight of a further penalty l1*|theta|_1").at_least(0);
  k("gradient_tolerance", gradient_tolerance,
    "lbfgs, newton, owlqn: stop when the gradient's norm is at most this fraction of the first one")
      .at_least(0);
  k("work_stealing", work_stealing,
    "lbfgs, owlqn: workers that have finished their samples take over chunks of slower workers");
  k("debug", debug, "print the objective of each round");
  k("seed", seed, "seed of the order of the samples").at_least(0);
  k("batch_size", batch_size, "downpour: samples per message; 0: a thousandth of a worker's samples, at least 10")
      .at_least(0);
  k("tolerance", tolerance, "stop when the objective changes by less than this fraction; 0: never").at_least(0);
  k("bias", bias, "add a bias: a feature that is always 1");
  k("penalize_bias", penalize_bias, "include the bias in the penalty");
  table.keys(k, {.classes = true});
  consistency = default_consistency();
  consistency_keys(k, consistency, "rounds", "bsp for dgd and ipm, ssp with limit_s 0 for the others",
                   {consistency_model::bsp, consistency_model::ssp, consistency_model::asp});
}

void lr_settings::check(const config& from) {
  const auto refuse = [&](const char* key, const std::string& why) { throw config_error(from.place_of(key) + why); };
  const auto name = from.get<std::string>("method");
  if (model.empty() && !uses_queue() && !alpha) refuse("alpha", " is missing (number > 0): step size of " + name);
  if (l1 > 0 && method != lr_method::owlqn) refuse("l1", ": only with \"method\": \"owlqn\", not with " + name);
  if (work_stealing && method != lr_method::lbfgs && method != lr_method::owlqn)
    refuse("work_stealing", ": only with \"method\": \"lbfgs\" or \"owlqn\", not with " + name);
  if (!model.empty() && !training_input.empty())
    refuse("model", ": not with training_input, which trains a model of its own");
  if (!model.empty()) refuse_keys(from, {"update_file", "update_func"}, "not with a model: nothing is trained");
  if (model.empty() && uses_queue())
    refuse_keys(from, {"update_file", "update_func"},
                "not with method " + name + ", which updates nothing in the servers");
  if (consistency.model == consistency_model::bsp && immediate())
    refuse("consistency", ": found \"bsp\", want ssp or asp: the updates of " + name + " are immediate");
  if (update_func.empty()) update_func = update_file.empty() ? default_add : "lr_theta_update";
}

logistic_regression::logistic_regression(Comm comm, const std::string& server_info, const lr_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds, settings.consistency),
      settings_(settings) {
  const auto& plugin = settings_.update_file.empty() ? default_plugin : settings_.update_file;
  paracel_register_update(plugin, settings_.update_func);
  paracel_register_bupdate(plugin, settings_.update_func);
}

namespace {

/// Paracel 0.3's arguments, with its meaning of alpha in dgd.
lr_settings settings_of_arguments(const std::string& input, const std::string& output, const std::string& update_file,
                                  const std::string& update_func, const std::string& method, int rounds, double alpha,
                                  double beta, bool debug) {
  lr_settings s;
  s.training_input = {input};
  s.output = output;
  s.update_file = update_file;
  s.update_func = update_func;
  const auto known = value_of(lr_methods, method);
  s.method = known.value_or(lr_method::lbfgs);
  if (s.uses_queue()) throw usage_error("method \"" + method + "\": want dgd, ipm, downpour or agd");
  s.sums_gradients = true;
  s.rounds = rounds;
  s.alpha = alpha;
  s.beta = beta;
  s.debug = debug;
  s.consistency = s.default_consistency();
  return s;
}

}  // namespace

logistic_regression::logistic_regression(Comm comm, const std::string& server_info, const std::string& input,
                                         const std::string& output, const std::string& update_file,
                                         const std::string& update_func, const std::string& method, int rounds,
                                         double alpha, double beta, bool debug)
    : logistic_regression(
          std::move(comm), server_info,
          settings_of_arguments(input, output, update_file, update_func, method, rounds, alpha, beta, debug)) {
  by_driver_ = true;
}

void logistic_regression::solve() {
  if (settings_.model.empty()) {
    load();
    if (settings_.uses_queue()) {
      minimize();
    } else {
      train();
      evaluate_result();
    }
    if (by_driver_) return;
    dump_model();
  } else {
    read_model();
    log_.emplace(*this, 1);
    measure();
  }
  dump_predictions();
  report();
}

// ---- loading

void logistic_regression::load() {
  auto training = load_training_table(get_comm(), settings_.training_input, settings_.table);
  check_squares(get_comm(), training, settings_.training_input.front());
  columns_ = training.columns;
  total_rows_ = training.rows_total;
  weigh_signs(get_comm(), settings_.table, training);
  total_weight_ = static_cast<double>(total_rows_);
  if (!training.weight.empty()) {
    double weight = 0;
    for (const double w : training.weight) weight += w;
    total_weight_ = sum_over_workers(get_comm(), weight);
  }
  if (settings_.uses_queue()) {
    // An L1 penalty of the bias cannot be written in the coordinates of centred rows.
    if (settings_.bias && (settings_.l1 == 0 || !settings_.penalize_bias)) shift_ = {get_comm(), training};
    if (training.weight.empty()) optim::group_equal_rows(training);
  } else {
    warn_of_scales(get_comm(), training, settings_.bias, "want standardised columns, or the method lbfgs or newton");
  }
  problem_ = problem_of(std::move(training));
  load_others();  // before training, so that bad data is reported early
}

void logistic_regression::read_model() {
  const model_reader model(settings_.model, "lr");
  theta_ = model.read<double>("lr_theta");
  settings_.bias = model.field<bool>("settings.bias");
  const std::size_t first = settings_.bias ? 1 : 0;
  if (theta_.size() <= first) throw data_error(settings_.model + ": found no weights");
  columns_ = theta_.size() - first;
  if (columns_ > settings_.table.samples.index_limit)
    throw data_error(settings_.model + ": found " + std::to_string(theta_.size()) + " weights, want at most " +
                     std::to_string(settings_.table.samples.index_limit + first));
  if (model.has_field("classes")) settings_.table.samples.classes = model.fields<std::string>("classes");
  read_fields(model, static_cast<std::uint32_t>(columns_), settings_.table);
  load_others();
}

/// Loads test_input and predict_input, with as many features as the model.
void logistic_regression::load_others() {
  auto options = settings_.table.samples;
  if (!settings_.test_input.empty()) {
    test_ = problem_of(load_samples(get_comm(), settings_.test_input, options));
  }
  if (!settings_.predict_input.empty()) {
    options.without_label = true;
    predict_ = problem_of(load_samples(get_comm(), settings_.predict_input, options));
  }
}

// ---- training

void logistic_regression::train() {
  theta_.assign(problem_.dimension(), 0.0);
  gradient_.assign(problem_.dimension(), 0.0);
  delta_.assign(problem_.dimension(), 0.0);
  order_.resize(problem_.rows());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  if (get_worker_id() == 0 && !resumed()) paracel_write(theta_key, theta_);
  paracel_sync();
  log_.emplace(*this, settings_.rounds, "objective", settings_.debug);
  int round = first_iteration();
  if (round > 0) read_theta();  // checks the checkpoint's dimension before the rest of it is used
  if (get_worker_id() == 0 && round > 0) {
    if (collected_ < 0) collected_ = removed_ = round;
    collect(round - 1, round - settled_after());
  }

  for (; round < settings_.rounds && !stops_at(round); ++round) {
    read_theta();
    std::fill(gradient_.begin(), gradient_.end(), 0.0);
    loss_ = problem_.add_gradient(theta_, gradient_) + problem_.weight() * problem_.penalty(theta_);
    problem_.add_penalty_gradient(theta_, problem_.weight(), gradient_);
    publish(round);
    step_ = settings_.alpha.value() / (1 + settings_.decay * round);
    if (settings_.method == lr_method::dgd) {
      dgd_round();
    } else {
      shuffle(round);
      if (settings_.method == lr_method::ipm) ipm_round();
      if (settings_.method == lr_method::downpour) downpour_round();
      if (settings_.method == lr_method::agd) agd_round();
    }
    iter_commit();
    if (get_worker_id() == 0) collect(round, round + 1 - settled_after());
  }
  rounds_done_ = round;
  set_total_iters(round);  // from now on reads come from the servers
  paracel_sync();
  read_theta();
}

void logistic_regression::read_theta() {
  paracel_read(theta_key, theta_);
  check_theta();
}

/// Checks that theta has as many elements as the data require.
void logistic_regression::check_theta() const {
  if (theta_.size() == problem_.dimension()) return;
  throw data_error(settings_.training_input.front() + ": theta of the " + (resumed() ? "checkpoint" : "servers") +
                   " has " + std::to_string(theta_.size()) + " elements, the data have " +
                   std::to_string(problem_.dimension()) + " (" + std::to_string(columns_) + " features" +
                   (settings_.bias ? " and the bias" : "") +
                   "); want the data and the bias that theta was trained with");
}

/// Rank 0 needs more than theta to resume: the history of the objective, and what it has announced to the others.
void logistic_regression::checkpoint_state(saved_state& to) {
  to.put("order", order_);
  to.put("collected", collected_);
  to.put("removed", removed_);
  to.put("first_objective", first_objective_);
  to.put("last_objective", last_objective_);
  to.put("converged", converged_);
  to.put("stop_round", stop_round_);
}

/// With a different number of workers the rows are distributed differently, and sums of incomplete rounds will never be
/// complete: rank 0 restarts monitoring at the next round.
void logistic_regression::restore_state(const saved_states& from) {
  const auto& own = from.own();
  own.get("first_objective", first_objective_);
  own.get("last_objective", last_objective_);
  own.get("converged", converged_);
  own.get("stop_round", stop_round_);
  collected_ = removed_ = -1;
  if (!from.same_workers()) return;
  std::vector<std::size_t> order;
  if (own.get("order", order) && settings_.method != lr_method::dgd && !settings_.uses_queue()) {
    if (order.size() != order_.size() || std::ranges::any_of(order, [&](auto i) { return i >= order_.size(); })) {
      throw data_error(settings_.training_input.front() + ": the checkpoint has an order of " +
                       std::to_string(order.size()) + " samples of worker " + std::to_string(get_worker_id()) +
                       ", it now has " + std::to_string(order_.size()) + "; want the samples that the job began with");
    }
    order_ = std::move(order);
  }
  own.get("collected", collected_);
  if (!own.get("removed", removed_)) removed_ = collected_;
}

/// One step along the gradient over all rows. The updates of a round take effect together, so all workers start the
/// next one with the same theta, whatever the number of workers or servers.
void logistic_regression::dgd_round() {
  const double step = settings_.sums_gradients ? -step_ : -step_ / total_weight_;
  for (std::size_t j = 0; j < delta_.size(); ++j) delta_[j] = step * gradient_[j];
  paracel_update(theta_key, delta_);
}

/// A pass of stochastic gradient descent over the own rows; theta becomes the mean of the workers' results, weighted by
/// rows.
void logistic_regression::ipm_round() {
  delta_ = theta_;
  problem_.row_steps(order_, step_, delta_, mean_weight());
  for (std::size_t j = 0; j < delta_.size(); ++j) delta_[j] = share() * (delta_[j] - theta_[j]);
  paracel_update(theta_key, delta_);
}

/// Stochastic steps on a copy of theta; after each batch the difference is pushed and the servers' theta is returned.
void logistic_regression::downpour_round() {
  const auto rows = settings_.batch_size != 0 ? settings_.batch_size : std::max<std::size_t>(order_.size() / 1000, 10);
  for (std::size_t at = 0; at < order_.size(); at += rows) {
    delta_ = theta_;
    problem_.row_steps(std::span(order_).subspan(at, std::min(rows, order_.size() - at)), step_, delta_, mean_weight());
    for (std::size_t j = 0; j < delta_.size(); ++j) delta_[j] -= theta_[j];
    paracel_bupdate_get(theta_key, delta_, theta_);
    check_theta();
  }
}

/// As downpour, with one sample a batch.
void logistic_regression::agd_round() {
  for (const auto i : order_) {
    problem_.row_step(i, step_, theta_, delta_, mean_weight());
    paracel_bupdate_get(theta_key, delta_, theta_);
    check_theta();
  }
}

void logistic_regression::shuffle(int round) {
  counter_random(settings_.seed, static_cast<std::uint64_t>(round), get_worker_id()).shuffle(order_);
}

// ---- monitoring
//
// Every worker adds its part of the objective and of the gradient, at its theta at the start of round r, to the key
// lr_round_r: a sum in the server instead of a collective, so that no worker waits for another because of it. Rank 0
// reads a key when all parts are in it. Under asp and ssp the parts may be computed at slightly different thetas.
//
//     lr_round_<r>    | rows | weights | loss | gradient 0 | gradient 1 | ...
//
// A sum is complete when it has all rows, or when all remaining workers have finished the round: a worker that was
// ejected sends no more, and the mean is over the rows of the others.

/// A worker without rows sends nothing: rank 0 does not wait for it, and an update after the key's removal would leak
/// it.
void logistic_regression::publish(int round) {
  if (problem_.rows() == 0) return;
  std::vector<double> part{static_cast<double>(problem_.rows()), problem_.weight(), loss_};
  part.insert(part.end(), gradient_.begin(), gradient_.end());
  paracel_update(round_key(round), part, {default_plugin, default_add});
}

/// After c commits, a read sees all remaining workers' parts of the first c rounds, except those of the last
/// settled_after() rounds. Asp guarantees nothing before the last barrier.
int logistic_regression::settled_after() const {
  const auto& c = settings_.consistency;
  return c.model == consistency_model::asp ? settings_.rounds : static_cast<int>(c.staleness);
}

/// Reads the sums that are complete, up to round `newest`; rounds before `settled` receive no more parts. The keys are
/// removed only after the next commit: if the process dies before that, its replacement reads them again. A sum may
/// then contain a part twice, except under bsp.
void logistic_regression::collect(int newest, int settled) {
  for (; removed_ < collected_; ++removed_) paracel_remove(round_key(removed_));
  std::vector<double> sum;
  while (collected_ <= newest && paracel_read(round_key(collected_), sum) && sum.size() == 3 + gradient_.size() &&
         (sum[0] >= static_cast<double>(total_rows_) || collected_ < settled)) {
    const double n = sum[1];
    double square = 0;
    for (std::size_t j = 3; j < sum.size(); ++j) square += sum[j] * sum[j];
    record(collected_, sum[2] / n, std::sqrt(square) / n);
    if (converged_ && stop_round_ < 0) stop_after(newest);
    ++collected_;
  }
}

divergence_rule logistic_regression::divergence() const {
  return {"the objective", "lower alpha (now " + text_of(settings_.alpha.value_or(0)) + ")", std::numbers::ln2};
}

/// `round`: the number of rounds before this objective.
void logistic_regression::record(int round, double objective, double gradient_norm) {
  if (round == 0) {
    first_objective_ = last_objective_ = objective;
    return;
  }
  log_->round(round, objective, {{"gradient_norm", gradient_norm}, {"staleness", last_staleness()}});
  check_divergence(divergence(), round, objective, first_objective_);
  const double change = std::abs(objective - last_objective_);
  last_objective_ = objective;
  converged_ = settings_.tolerance > 0 && change <= settings_.tolerance * std::abs(objective);
}

/// Rank 0, between committing `round` and starting the next one, announces where to stop. Under bsp and ssp no worker
/// can start that round before rank 0 has committed the next one, so all workers see the key in time and stop at the
/// same round. Under asp each worker stops when it sees the key.
void logistic_regression::stop_after(int round) {
  stop_round_ = round + 2 + static_cast<int>(settings_.consistency.staleness);
  paracel_write(stop_key, stop_round_);
}

bool logistic_regression::stops_at(int round) {
  if (settings_.tolerance == 0) return false;
  int stop = -1;
  return paracel_read(stop_key, stop) && round >= stop;
}

// ---- results

void logistic_regression::evaluate_result() {
  if (get_worker_id() == 0) {
    collect(rounds_done_ - 1, rounds_done_);
    for (; removed_ < collected_; ++removed_) paracel_remove(round_key(removed_));
  }
  std::vector<double> sum(1 + theta_.size());
  sum[0] = problem_.add_gradient(theta_, std::span(sum).subspan(1));
  sum.push_back(static_cast<double>(problem_.rows()));
  sum.push_back(problem_.weight());
  get_comm().allreduce(sum);
  // Not the initial totals: a worker may have been ejected.
  const double n = total_weight_ = sum.back();
  sum.pop_back();
  total_rows_ = static_cast<std::size_t>(sum.back());
  sum.pop_back();
  for (auto& v : sum) v /= n;
  objective_ = sum[0] + problem_.penalty(theta_);
  problem_.add_penalty_gradient(theta_, 1.0, std::span(sum).subspan(1));
  double square = 0;
  for (std::size_t j = 1; j < sum.size(); ++j) square += sum[j] * sum[j];
  if (get_worker_id() == 0) {
    record(rounds_done_, objective_, std::sqrt(square));
    check_finite(divergence(), rounds_done_, theta_);
    // Not divergence: steps of one size end near the optimum, which may be no better than the start.
    if (objective_ > first_objective_)
      warn(get_comm(), "after " + std::to_string(rounds_done_) + " rounds the objective is " + text_of(objective_) +
                           " and began at " + text_of(first_objective_) + "; want a lower alpha (now " +
                           text_of(settings_.alpha.value_or(0)) + ") or decay");
  }
  // No worker may write results or exit before rank 0 has checked for errors.
  paracel_sync();
  measure();
}

void logistic_regression::measure() {
  if (settings_.test_input.empty()) return;
  std::vector<double> margin(test_.rows());
  for (std::size_t i = 0; i < margin.size(); ++i) margin[i] = test_.margin(i, theta_);
  quality_ = quality_over_workers(get_comm(), margin, test_.samples().label, test_.samples().weight);
}

// ---- for drivers in the manner of Paracel 0.3

double logistic_regression::lr_hypothesis(const std::vector<double>& sample) const {
  if (sample.size() != theta_.size())
    throw error("lr_hypothesis of " + std::to_string(sample.size()) + " numbers, want " +
                std::to_string(theta_.size()));
  return logistic(std::inner_product(sample.begin(), sample.end(), theta_.begin(), 0.0));
}

double logistic_regression::mean_loss(const lr_problem& of) {
  std::vector<double> unused(theta_.size());
  std::vector<double> sum{of.add_gradient(theta_, unused), of.weight()};
  get_comm().allreduce(sum);
  return sum[1] > 0 ? sum[0] / sum[1] : 0;
}

double logistic_regression::calc_loss() { return mean_loss(problem_); }

void logistic_regression::test(const std::string& input) {
  settings_.test_input = {input};
  settings_.predict_input.clear();
  load_others();
  const double loss = mean_loss(test_);
  if (get_worker_id() == 0) std::cout << "loss in test dataset is: " << text_of(loss) << std::endl;
}

void logistic_regression::predict(const std::string& input) {
  settings_.test_input.clear();
  settings_.predict_input = {input};
  load_others();
}

void logistic_regression::dump_result() {
  dump_model();
  dump_predictions();
}

void logistic_regression::print(const std::vector<double>& numbers) {
  std::string line;
  for (const double x : numbers) line.append(line.empty() ? "" : " ").append(text_of(x));
  std::cout << line << std::endl;
}

void logistic_regression::dump_model() {
  model_writer model(*this, "lr", settings_.format);
  model.add("lr_theta", theta_);
  model.settings()
      .add("method", settings_.method_name())
      .add("gradient", settings_.sums_gradients ? "sum" : "mean")
      .add("alpha", settings_.alpha.value_or(0))
      .add("decay", settings_.decay)
      .add("beta", settings_.beta)
      .add("l1", settings_.l1)
      .add("gradient_tolerance", settings_.gradient_tolerance)
      .add("bias", settings_.bias)
      .add("penalize_bias", settings_.penalize_bias);
  model.fields()
      .add("rounds", rounds_done_)
      .add("columns", std::uint64_t{columns_})
      .add("training_rows", std::uint64_t{total_rows_})
      .add("objective", objective_);
  add_classes(model, settings_.table.samples.classes);
  add_fields(model, settings_.table.samples);
  if (settings_.format == result_format::text) {
    std::string theta;
    for (const double t : theta_) theta += (theta.empty() ? "" : ", ") + json_number(t);
    model.fields().raw("theta", "[" + theta + "]");
  }
  if (quality_.rows > 0) {
    json_object test;
    test.add("rows", quality_.rows)
        .add("accuracy", quality_.accuracy)
        .add("auc", quality_.auc)
        .add("log_loss", quality_.log_loss);
    model.fields().raw("test", test.text());
  }
  model.finish();
  log_->result("objective", objective_);
}

void logistic_regression::dump_predictions() {
  if (settings_.predict_input.empty()) return;
  std::vector<std::string> lines(predict_.rows());
  for (std::size_t i = 0; i < lines.size(); ++i)
    lines[i] = prediction_line(predict_.samples(), i, logistic(predict_.margin(i, theta_)));
  paracel_dump_vector(lines, "pred_v_", "\n");
}

void logistic_regression::report() {
  if (quality_.rows > 0) {
    log_->result("accuracy", quality_.accuracy);
    log_->result("auc", quality_.auc);
    log_->result("log_loss", quality_.log_loss);
  }
  log_->result("output", get_output());
}

}  // namespace paracel::alg
