// SPDX-License-Identifier: BSD-3-Clause
#include "lr.hpp"

#include <iostream>
#include <numeric>

#include <paracel/text_output.hpp>

#include "alg/common/output/server_state.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

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
  linear_settings::keys(k, sample_options::label_rule::binary, {.classes = true}, false);
  initial.key(k, model);
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
    "lbfgs, newton, owlqn: stop when the gradient's norm is at most this fraction of the first one; with initial_model "
    "of that at theta 0")
      .at_least(0);
  k("work_stealing", work_stealing,
    "lbfgs, owlqn: workers that have finished their samples take over chunks of slower workers");
  k("seed", seed, "seed of the order of the samples").at_least(0);
  k("batch_size", batch_size, "downpour: samples per message; 0: a thousandth of a worker's samples, at least 10")
      .at_least(0);
  k("tolerance", tolerance, "stop when the objective changes by less than this fraction; 0: never").at_least(0);
  k("bias", bias, "add a bias: a feature that is always 1");
  if (k.from() != nullptr) bias_place = k.from()->place_of("bias");
  k("penalize_bias", penalize_bias, "include the bias in the penalty");
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
  if (!model.empty()) refuse_keys(from, {"update_file", "update_func"}, "not with a model: nothing is trained");
  if (model.empty() && uses_queue())
    refuse_keys(from, {"update_file", "update_func"},
                "not with method " + name + ", which updates nothing in the servers");
  if (consistency.model == consistency_model::bsp && immediate())
    refuse("consistency", ": found \"bsp\", want ssp or asp: the updates of " + name + " are immediate");
  if (update_func.empty()) update_func = update_file.empty() ? "paracel_add" : "lr_theta_update";
}

logistic_regression::logistic_regression(Comm comm, const std::string& server_info, const lr_settings& settings)
    : linear_base(std::move(comm), server_info, settings, settings.rounds, settings.consistency), settings_(settings) {
  const auto plugin = settings_.update_file.empty() ? "libparacel_default.so" : settings_.update_file;
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
  if (linear_.model.empty()) {
    train();
    if (by_driver_) return;
    measure();
    dump_model();
  } else {
    read_model();
    log_.emplace(*this, 1);
    measure();
  }
  dump_predicted();
  if (quality_.rows > 0) log_quality(*log_, quality_);
  log_->result("output", get_output());
}

void logistic_regression::train() {
  if (linear_.initial.given()) read_initial();
  auto rows = load_training();
  weigh_signs(get_comm(), linear_.table, rows);
  const auto total_rows = static_cast<std::size_t>(rows.rows_total);
  auto total_weight = static_cast<double>(total_rows);
  if (!rows.weight.empty())
    total_weight = sum_over_workers(get_comm(), std::accumulate(rows.weight.begin(), rows.weight.end(), 0.0));
  load_others();  // before training, so that bad data is reported early
  problem_ = problem_of(std::move(rows));
  start_.theta.resize(problem_.dimension());
  log_.emplace(*this, settings_.rounds, "objective", linear_.debug);
  training_ = lr_training_of({*this, settings_, problem_, start_, total_rows, total_weight, *log_});
  fit_ = training_->run();
}

lr_problem logistic_regression::problem_of(sample_rows rows) const {
  const std::size_t columns = samples().columns;
  return {std::move(rows), columns, settings_.bias, settings_.penalize_bias, settings_.beta};
}

void logistic_regression::read_model() {
  const model_reader model(linear_.model, "lr");
  settings_.bias = model.field<bool>("settings.bias");
  fit_.theta = read_weights(model, "lr_theta", settings_.bias);
  if (!settings_.bias) fit_.theta.erase(fit_.theta.begin());
  load_others();
}

void logistic_regression::read_initial() {
  start_.theta = read_initial_weights("lr", "lr_theta", settings_.bias, settings_.bias_place);
  if (!settings_.bias) start_.theta.erase(start_.theta.begin());
  const model_reader model(linear_.initial.path, "lr");
  // A minimiser's steps do not depend on their number.
  if (!settings_.uses_queue() && model.field<std::string>("settings.method") == settings_.method_name())
    start_.rounds = rounds_of(model);
}

void logistic_regression::measure() {
  if (!has_test()) return;
  std::vector<double> margin(test_.rows());
  for (std::size_t i = 0; i < margin.size(); ++i) margin[i] = lr_margin(test_, i, fit_.theta, settings_.bias);
  quality_ = quality_over_workers(get_comm(), margin, test_.label, test_.weight);
}

// ---- for drivers in the manner of Paracel 0.3

double logistic_regression::lr_hypothesis(const std::vector<double>& sample) const {
  if (sample.size() != fit_.theta.size())
    throw error("lr_hypothesis of " + std::to_string(sample.size()) + " numbers, want " +
                std::to_string(fit_.theta.size()));
  return logistic(std::inner_product(sample.begin(), sample.end(), fit_.theta.begin(), 0.0));
}

double logistic_regression::mean_loss(const lr_problem& of) {
  std::vector<double> unused(fit_.theta.size());
  std::vector<double> sum{of.add_gradient(fit_.theta, unused), of.weight()};
  get_comm().allreduce(sum);
  return sum[1] > 0 ? sum[0] / sum[1] : 0;
}

double logistic_regression::calc_loss() { return mean_loss(problem_); }

void logistic_regression::test(const std::string& input) {
  linear_.test_input = {input};
  linear_.predict_input.clear();
  load_others();
  const double loss = mean_loss(problem_of(test_));
  if (get_worker_id() == 0) std::cout << "loss in test dataset is: " << text_of(loss) << std::endl;
}

void logistic_regression::predict(const std::string& input) {
  linear_.test_input.clear();
  linear_.predict_input = {input};
  load_others();
}

void logistic_regression::dump_result() {
  dump_model();
  dump_predicted();
}

void logistic_regression::print(const std::vector<double>& numbers) {
  std::string line;
  for (const double x : numbers) line.append(line.empty() ? "" : " ").append(text_of(x));
  std::cout << line << std::endl;
}

void logistic_regression::dump_model() {
  model_writer model(*this, "lr", linear_.format);
  model.add("lr_theta", fit_.theta);
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
      .add("rounds", fit_.rounds)
      .add("columns", std::uint64_t{samples().columns})
      .add("training_rows", std::uint64_t{fit_.rows})
      .add("objective", fit_.objective);
  add_classes(model, samples().classes);
  describe_fields(model);
  if (linear_.format == result_format::text) model.fields().raw("theta", json_list(fit_.theta));
  if (quality_.rows > 0) add_quality(model, quality_);
  model.finish();
  log_->result("objective", fit_.objective);
}

void logistic_regression::dump_predicted() {
  dump_predictions([&](std::size_t i) { return logistic(lr_margin(predict_, i, fit_.theta, settings_.bias)); });
}

}  // namespace paracel::alg
