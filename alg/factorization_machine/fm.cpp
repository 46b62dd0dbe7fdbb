// SPDX-License-Identifier: BSD-3-Clause
#include "fm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/collectives.hpp>
#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

#include "alg/common/output/server_state.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/column_shift.hpp"
#include "alg/common/solvers/row_weights.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"
#include "fm_als.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint64_t order_stream = 2;
// Samples whose model rows are pulled at once outside training, and model rows copied at once: a few megabytes.
constexpr std::size_t block_samples = 8192;
constexpr std::uint64_t block_ids = 16384;

constexpr const char* default_plugin = "libparacel_default.so";

row_optimizer optimizer_of(const fm_settings& s) {
  return {default_plugin, s.method == fm_method::adagrad ? "paracel_adagrad" : "paracel_sgd", {{"lr", s.alpha}}};
}

constexpr choices<fm_loss> losses = {{"squared", fm_loss::squared}, {"log", fm_loss::log}};

}  // namespace

// ---- config

void fm_settings::keys(key_list& to) {
  class_settings::keys(to);
  to("loss", loss, "squared: for numbers; log: for two classes", losses);
  to("method", method, "adagrad, sgd: gradient steps in the servers; als: alternating least squares",
     {{"adagrad", fm_method::adagrad}, {"sgd", fm_method::sgd}, {"als", fm_method::als}});
  to("k", k, "number of factors of a feature; 0: a linear model").at_least(0).at_most(4096);
  to("rounds", rounds, "passes over the samples").at_least(1).at_most(1000000);
  to("batch_size", batch_size, "samples of all workers between two exchanges of rows").at_least(1).at_most(1000000000);
  to("alpha", alpha, "step size").above(0);
  to("beta_w", penalty.w, "weight of the regulariser of w").at_least(0);
  to("beta_v", penalty.v, "weight of the regulariser of the factors").at_least(0);
  to("start", start, "standard deviation of the factors before the first step").at_least(0);
  to("seed", seed, "seed of the initial factors and of the order of the samples").at_least(0);
  to("bias", bias, "add a bias, which is not penalised, to every prediction");
  to("clamp", clamp, "loss squared: limit predictions to the range of the training targets");
  consistency_keys(to, consistency, "batches", "bsp", {consistency_model::bsp, consistency_model::ssp});
  validation_settings::keys(to, "round");
  initial.key(to, model);
}

void fm_settings::check(const config& from) {
  loss_place = from.place_of("loss");
  bias_place = from.place_of("bias");
  k_place = place_if_given(from, "k");
  if (method == fm_method::als) {
    refuse_keys(from, {"batch_size", "alpha"}, "only with method adagrad or sgd");
    if (consistency.model != consistency_model::bsp)
      throw config_error(from.place_of("method") + ": als has no updates that could be delayed; want consistency bsp");
  }
  if (!model.empty()) return;  // the model has a loss of its own
  if (loss == fm_loss::squared) {
    table.samples.label = sample_options::label_rule::real;
    refuse_keys(from, {"class_weight", "scores"}, "only with loss log, which has classes");
  } else {
    refuse_keys(from, {"clamp"}, "only with loss squared");
  }
}

// ---- the job

factorization_machine::factorization_machine(Comm comm, const std::string& server_info, const fm_settings& settings)
    : class_base(std::move(comm), server_info, settings, settings.rounds, settings.consistency),
      settings_(settings),
      log_(*this, settings.rounds, settings.loss == fm_loss::log ? "running_loss" : "running_rmse", settings.debug),
      kernel_(settings.loss, settings.k, settings.penalty) {}

void factorization_machine::solve() {
  if (!linear_.model.empty()) {
    read_model();
    use_model(nullptr);
    return;
  }
  if (linear_.initial.given()) read_initial();
  load();
  const double bias = first_bias();
  if (settings_.method == fm_method::als) {
    alternate(bias);
  } else {
    warn_of_scales(get_comm(), rows_, settings_.bias, "scale the columns, or use method als");
    start_rows(bias);
    train();
  }
  measure();
  write();
}

void factorization_machine::read_initial() {
  const model_reader from(linear_.initial.path, "fm");
  want_as_in_model(settings_.loss_place, word_of(losses, settings_.loss), from.field<std::string>("settings.loss"));
  want_as_in_model(settings_.bias_place, settings_.bias, from.field<bool>("settings.bias"));
  initial_.read(from);
  want_as_in_model(settings_.k_place, std::to_string(settings_.k), std::to_string(initial_.width - 1));
  settings_.k = initial_.width - 1;
  kernel_ = fm_kernel(settings_.loss, settings_.k, settings_.penalty);
  const auto columns = static_cast<std::uint32_t>(initial_.end() - 1);
  if (is_log()) {
    continue_classes(from, columns);
    return;
  }
  read_fields(from, columns, linear_.table);
  least_ = from.field<double>("least_target");
  greatest_ = from.field<double>("greatest_target");
}

void factorization_machine::load() {
  if (is_log()) {
    rows_ = load_training_classes(2);
    if (classes().size() > 2)
      throw data_error(linear_.training_input.front() + ": found " + std::to_string(classes().size()) +
                       " classes, want two with loss log");
  } else {
    rows_ = load_training();
    weights() = std::move(rows_.weight);
    rows_.weight.clear();
    load_others();
  }
  if (!settings_.validation_input.empty()) held_ = load_validation(settings_.validation_input);
  columns_ = rows_.columns;
  names_ = rows_.names;
}

/// The constant that fits best: the initial bias.
double factorization_machine::first_bias() {
  std::vector<double> sums(3);  // weights; weighted targets, or those of the second class; their squares
  double least = std::numeric_limits<double>::infinity();
  double greatest = -least;
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const double weight = weights().empty() ? 1 : weights()[i];
    sums[0] += weight;
    sums[1] += weight * rows_.label[i];
    sums[2] += weight * rows_.label[i] * rows_.label[i];
    least = std::min(least, rows_.label[i]);
    greatest = std::max(greatest, rows_.label[i]);
  }
  sum_over_workers(get_comm(), sums);
  auto comm = get_comm();
  comm.allreduce(least, reduce_op::min);
  comm.allreduce(greatest, reduce_op::max);
  const bool continues = linear_.initial.given();
  least_ = continues ? std::min(least, least_) : least;
  greatest_ = continues ? std::max(greatest, greatest_) : greatest;
  weight_total_ = sums[0];
  if (!(weight_total_ > 0)) throw data_error(linear_.training_input.front() + ": found only weights that are 0");
  const double mean = sums[1] / sums[0];
  scale_ = is_log() ? std::log(2) : scale_of_squares(sums[2], sums[0]);
  if (!is_log()) {
    double squares = 0;
    for (std::size_t i = 0; i < rows_.rows(); ++i)
      squares += (weights().empty() ? 1 : weights()[i]) * (rows_.label[i] - mean) * (rows_.label[i] - mean);
    squares = sum_over_workers(get_comm(), squares);
    if (settings_.method != fm_method::als)
      warn_of_spread(get_comm(), "the targets", std::sqrt(squares / weight_total_), "alpha and start");
    return mean;
  }
  const double part = std::clamp(mean, 1 / (sums[0] + 2), 1 - 1 / (sums[0] + 2));
  return std::log(part / (1 - part));
}

divergence_rule factorization_machine::rule() const {
  if (settings_.method == fm_method::als)
    return {"the mean loss", "want numbers of a size near 1 in columns and targets", scale_};
  return {"the mean loss", "lower alpha (now " + json_number(settings_.alpha) + ")", scale_};
}

/// Opens the table. Every worker pushes the initial rows of the features in its samples, which are the same on all
/// workers; other rows are zeros, so that a feature without samples does not contribute to predictions. Rows that the
/// initial model knows are pushed by the workers that write them.
void factorization_machine::start_rows(double bias) {
  table_.emplace(*this, "fm", settings_.k + 1, row_init::zeros(), optimizer_of(settings_));
  if (settings_.patience > 0) best_.emplace(*this, "fm_best", settings_.k + 1);
  if (settings_.method == fm_method::adagrad) squares_ = fm_squares(rows_, settings_.bias, kernel_.width());
  const auto steps = stepped_rows();
  if (resumed()) return paracel_sync();
  fm_batcher all(rows_, weights(), settings_.bias, is_log());
  for (std::size_t first = 0; first < rows_.rows(); first += block_samples) {
    all.cut(first, std::min(first + block_samples, rows_.rows()), batch_);
    model_.resize(batch_.ids.size() * kernel_.width());
    for (std::size_t s = 0; s < batch_.ids.size(); ++s)
      fm_start_row(std::span(model_).subspan(s * kernel_.width(), kernel_.width()), settings_.seed, batch_.ids[s],
                   settings_.start);
    if (settings_.bias) model_[0] = bias;
    std::erase_if(batch_.ids, [&, s = std::size_t{0}, to = std::size_t{0}](std::uint64_t id) mutable {
      const auto at = s++;
      if (initial_.knows(id)) return true;
      std::copy_n(model_.begin() + static_cast<std::ptrdiff_t>(at * kernel_.width()), kernel_.width(),
                  model_.begin() + static_cast<std::ptrdiff_t>(to++ * kernel_.width()));
      return false;
    });
    model_.resize(batch_.ids.size() * kernel_.width());
    table_->push(batch_.ids, model_);
  }
  push_initial_rows(steps);
  paracel_sync();
}

/// With an initial model 1 for each model row that adagrad will step, else 0. A collective.
std::vector<std::int64_t> factorization_machine::stepped_rows() {
  std::vector<std::int64_t> steps;
  if (initial_.end() == 0) return steps;
  steps.resize(columns_ + std::size_t{1});
  for (std::size_t id = 0; settings_.method == fm_method::adagrad && id < steps.size(); ++id)
    steps[id] = squares_.has(id) ? 1 : 0;
  get_comm().allreduce(steps, reduce_op::max);
  return steps;
}

/// The rows that the initial model knows, by the workers that write them.
void factorization_machine::push_initial_rows(const std::vector<std::int64_t>& steps) {
  if (steps.empty()) return;
  for_own_ids([&](const auto& ids) {
    auto stepped = ids;
    std::erase_if(stepped, [&](std::uint64_t id) { return steps[id] == 0; });
    auto others = ids;
    std::erase_if(others, [&](std::uint64_t id) { return steps[id] != 0; });
    initial_.push_with_squares(*table_, stepped, settings_.alpha);
    initial_.push(*table_, others);
  });
}

void factorization_machine::pull_batch() {
  model_.resize(batch_.ids.size() * kernel_.width());
  table_->pull(batch_.ids, model_);
}

/// A round is `batches` clocks plus one, in which the workers sum the losses and evaluate the held-out rows.
void factorization_machine::train() {
  const auto size = static_cast<std::size_t>(get_worker_size());
  const std::uint64_t batches = (rows_.rows_total + settings_.batch_size - 1) / settings_.batch_size;
  const auto clocks = static_cast<std::int64_t>(batches) + 1;
  if (clocks > std::numeric_limits<std::int32_t>::max() / settings_.rounds)
    throw error("fm: " + std::to_string(settings_.rounds) + " rounds of " + std::to_string(clocks) +
                " exchanges are more than 2^31; raise batch_size or lower rounds");
  fm_batcher batcher(rows_, weights(), settings_.bias, is_log());
  std::vector<std::uint32_t> order(rows_.rows());
  std::vector<double> gradient;
  std::vector<double> curvature;
  const bool adagrad = settings_.method == fm_method::adagrad;
  std::vector<double> best_squares;
  std::int64_t shuffled = -1;  // the round in whose order the samples are
  double loss = 0;
  std::vector<double> start(2);  // losses and weights of the first batch, before any step
  double best_loss = std::numeric_limits<double>::infinity();
  int best_round = 0;
  resumable_loop loop(*this);
  loop.keep("loss", loss).keep("start", start).keep("best_loss", best_loss).keep("best_round", best_round);
  loop.keep("squares", squares_.values()).keep("best_squares", best_squares);
  loop.always_commits();
  while (loop.next(settings_.rounds * clocks)) {
    const auto round = loop.iteration() / clocks;
    const auto clock = static_cast<std::uint64_t>(loop.iteration() % clocks);
    if (clock < batches) {
      if (std::exchange(shuffled, round) != round) {
        std::iota(order.begin(), order.end(), 0U);
        counter_random(settings_.seed, order_stream,
                       mix64(get_worker_id()) + static_cast<std::uint64_t>(initial_.rounds + round))
            .shuffle(order);
      }
      if (clock == 0) loss = 0;
      const auto first = order.size() * clock / batches;
      const auto last = order.size() * (clock + 1) / batches;
      if (first == last) continue;
      batcher.cut(std::span(order).subspan(first, last - first), batch_);
      pull_batch();
      gradient.resize(model_.size());
      if (settings_.method == fm_method::sgd) curvature.resize(batch_.ids.size());
      loss += kernel_.gradient(batch_, model_, gradient, curvature);
      if (adagrad) squares_.add(batch_, gradient);
      if (loop.iteration() == 0) start = {loss, std::accumulate(batch_.weight.begin(), batch_.weight.end(), 0.0)};
      for (std::size_t s = 0; s < curvature.size(); ++s) {
        const double share = fm_share(settings_.alpha, curvature[s], size);
        for (std::size_t f = 0; f < kernel_.width(); ++f) gradient[s * kernel_.width() + f] *= share;
      }
      table_->update(batch_.ids, gradient);
      continue;
    }
    const int number = static_cast<int>(round) + 1;
    const double mean = sum_over_workers(get_comm(), loss) / weight_total_;
    if (round == 0) sum_over_workers(get_comm(), start);
    check_divergence(rule(), number, mean, start[1] > 0 ? start[0] / start[1] : 0);
    run_log::figures figures{{"staleness", last_staleness()}};
    if (!settings_.validation_input.empty()) {
      auto sums = held_out(nullptr);
      sum_over_workers(get_comm(), sums);
      const validation found(sums);
      const auto more = validation_figures(found);
      figures.insert(figures.end(), more.begin(), more.end());
      if (settings_.patience > 0 && found.loss < best_loss) {
        best_loss = found.loss;
        best_round = number;
        best_squares = squares_.values();
        copy_own_rows(*table_, *best_);
      }
      if (settings_.patience > 0 && number - best_round >= settings_.patience) loop.stop();
    }
    log_.round(number, is_log() ? mean : std::sqrt(2 * mean), figures);
  }
  start_loss_ = start[1] > 0 ? start[0] / start[1] : 0;
  rounds_done_ = static_cast<int>(loop.iteration() / clocks);
  set_total_iters(static_cast<int>(loop.iteration()));
  paracel_sync();
  if (settings_.patience > 0 && best_round > 0 && best_round < rounds_done_) {
    copy_own_rows(*best_, *table_);
    squares_.values() = std::move(best_squares);
    rounds_done_ = best_round;
  }
  paracel_sync();
}

/// Alternating least squares. Afterwards the model is pushed to the table.
void factorization_machine::alternate(double bias) {
  collectives all(get_comm());
  fm_als solver(all, rows_, weights(), settings_.loss, settings_.k, settings_.penalty, settings_.bias);
  const bool validates = !settings_.validation_input.empty();
  log_.watch("objective", settings_.rounds);
  auto model = solver.start(bias, settings_.seed, settings_.start);
  for (std::uint64_t id = 0; id < initial_.end(); ++id) {
    if (initial_.knows(id))
      std::ranges::copy(initial_.row(id), model.begin() + static_cast<std::ptrdiff_t>(id * kernel_.width()));
  }
  std::vector<double> best;  // with patience: the model with the least validation loss
  double best_loss = std::numeric_limits<double>::infinity();
  resumable_loop loop(*this);
  loop.keep("model", model).keep("best", best).keep("best_loss", best_loss).keep("best_round", rounds_done_);
  while (loop.next(settings_.rounds)) {
    const int number = static_cast<int>(loop.iteration()) + 1;
    const double objective = solver.round(all, model);
    // A round does not raise it, but numbers may overflow.
    check_divergence({"the objective", rule().remedy}, number, objective, 0);
    run_log::figures figures;
    bool improves = true;
    if (validates) {
      auto sums = held_out(&model);
      all.all_reduce(std::span(sums), reduce_op::sum, "validation");
      const validation found(sums);
      figures = validation_figures(found);
      improves = settings_.patience == 0 || number == 1 || found.loss < best_loss;
      if (improves) best_loss = found.loss;
    }
    if (improves) rounds_done_ = number;
    if (improves && settings_.patience > 0) best = model;
    log_.round(number, objective, figures);
    if (settings_.patience > 0 && number - rounds_done_ >= settings_.patience) loop.stop();
  }
  if (settings_.patience > 0) model = std::move(best);
  table_.emplace(*this, "fm", kernel_.width());
  for_own_ids([&](const auto& ids) {
    table_->push(ids, std::span(model).subspan(ids.front() * kernel_.width(), ids.size() * kernel_.width()));
  });
  paracel_sync();
}

template <class F>
void factorization_machine::for_margins(const sample_rows& rows, const std::vector<double>* model, F&& use) {
  fm_batcher all(rows, {}, settings_.bias, is_log());
  for (std::size_t first = 0; first < rows.rows(); first += block_samples) {
    const auto last = std::min(first + block_samples, rows.rows());
    all.cut(first, last, batch_);
    if (model == nullptr) {
      pull_batch();
    } else {
      model_.clear();
      for (const auto id : batch_.ids) {
        const auto row = std::span(*model).subspan(id * kernel_.width(), kernel_.width());
        model_.insert(model_.end(), row.begin(), row.end());
      }
    }
    for (std::size_t i = first; i < last; ++i) use(i, kernel_.margin(batch_, i - first, model_));
  }
}

/// No worker may train while it runs: its clock has no updates.
std::vector<double> factorization_machine::held_out(const std::vector<double>* model) {
  std::vector<double> sums(3);
  for_margins(held_, model, [&](std::size_t i, double m) {
    const double label = is_log() ? 2 * held_.label[i] - 1 : held_.label[i];
    const double weight = weight_of_row(held_, i);
    sums[0] += weight;
    sums[1] += weight * kernel_.loss(is_log() ? m : prediction(m), label);
    sums[2] += (m > 0) == (label > 0) ? weight : 0;
  });
  return sums;
}

run_log::figures factorization_machine::validation_figures(const validation& found) const {
  if (!is_log()) return {{"validate_rmse", std::sqrt(2 * found.loss)}};
  return {{"validate_loss", found.loss}, {"validate_accuracy", found.accuracy}};
}

template <class F>
void factorization_machine::for_own_ids(F&& use) {
  const auto own = owned_range_of(std::size_t{columns_} + 1, get_worker_size(), get_worker_id());
  std::vector<std::uint64_t> ids;
  for (std::uint64_t first = own.begin; first < own.end; first += block_ids) {
    ids.resize(std::min<std::uint64_t>(block_ids, own.end - first));
    std::iota(ids.begin(), ids.end(), first);
    use(std::as_const(ids));
  }
}

void factorization_machine::copy_own_rows(table<double>& from, table<double>& to) {
  for_own_ids([&](const auto& ids) {
    model_.resize(ids.size() * kernel_.width());
    from.pull(ids, model_);
    to.push(ids, model_);
  });
}

/// The loss and the objective of the model.
void factorization_machine::measure() {
  std::vector<double> sums(3);  // losses, penalties, squared errors of predictions
  fm_batcher all(rows_, weights(), settings_.bias, is_log());
  for (std::size_t first = 0; first < rows_.rows(); first += block_samples) {
    const auto last = std::min(first + block_samples, rows_.rows());
    all.cut(first, last, batch_);
    pull_batch();
    for (std::size_t i = 0; i < batch_.rows(); ++i) {
      const double m = kernel_.margin(batch_, i, model_);
      sums[0] += batch_.weight[i] * kernel_.loss(m, batch_.label[i]);
      if (!is_log()) sums[2] += batch_.weight[i] * std::pow(prediction(m) - batch_.label[i], 2);
    }
    sums[1] += kernel_.penalties(batch_, model_);
  }
  sum_over_workers(get_comm(), sums);
  check_divergence(rule(), rounds_done_, sums[0] / weight_total_, start_loss_);
  log_.result("rounds", static_cast<std::uint64_t>(rounds_done_));
  log_.result("objective", sums[0] + sums[1]);
  log_.result("loss", sums[0]);
  if (!is_log()) log_.result("train_rmse", std::sqrt(sums[2] / weight_total_));
}

double factorization_machine::prediction(double margin) const {
  return settings_.clamp && !is_log() ? std::clamp(margin, least_, greatest_) : margin;
}

void factorization_machine::write() {
  std::vector<double> own;
  auto ids = id_list::empty(false);
  for_own_ids([&](const auto& rows) {
    model_.resize(rows.size() * kernel_.width());
    table_->pull(rows, model_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto id = rows[i];
      if (id == 0) ids.push_back(std::string_view("bias"));
      else ids.push_back(std::string_view(names_.empty() ? std::to_string(id) : names_[id - 1]));
    }
    own.insert(own.end(), model_.begin(), model_.end());
  });
  model_writer model(*this, "fm", linear_.format);
  model.add_rows<double>("fm_row", own, {kernel_.width()}, &ids);
  if (settings_.method == fm_method::adagrad)
    model.add_rows<double>("fm_squares", own_squares(), {kernel_.width()}, &ids);
  if (is_log()) {
    describe(model, rows_.rows_total);
  } else {
    describe_fields(model);
    model.fields().add("rows", rows_.rows_total).add("least_target", least_).add("greatest_target", greatest_);
  }
  model.fields().add("rounds", initial_.rounds + rounds_done_);
  use_model(&model);
}

std::vector<double> factorization_machine::own_squares() {
  std::vector<double> out;
  const auto own = owned_range_of(std::size_t{columns_} + 1, get_worker_size(), get_worker_id());
  for (std::uint64_t first = 0; first <= columns_; first += block_ids) {
    const auto last = std::min<std::uint64_t>(first + block_ids, std::uint64_t{columns_} + 1);
    auto block = squares_.sum(get_comm(), first, last);
    initial_.add_squares(first, block);
    const auto from = std::clamp<std::uint64_t>(own.begin, first, last);
    const auto to = std::clamp<std::uint64_t>(own.end, first, last);
    const auto width = kernel_.width();
    out.insert(out.end(), block.begin() + static_cast<std::ptrdiff_t>((from - first) * width),
               block.begin() + static_cast<std::ptrdiff_t>((to - first) * width));
  }
  return out;
}

/// Loads the rows of a saved model into the table.
void factorization_machine::read_model() {
  const model_reader from(linear_.model, "fm");
  const auto shape = from.shape("fm_row");
  if (shape.size() != 2 || shape[0] < 2 || shape[0] > UINT32_MAX || shape[1] < 1)
    throw data_error(linear_.model + ": found no rows of features");
  settings_.k = shape[1] - 1;
  settings_.loss = from.field("settings.loss", losses);
  settings_.bias = from.field<bool>("settings.bias");
  settings_.clamp = from.field<bool>("settings.clamp");
  kernel_ = fm_kernel(settings_.loss, settings_.k, settings_.penalty);
  columns_ = static_cast<std::uint32_t>(shape[0] - 1);
  if (is_log()) {
    read_classes(from, columns_);
    if (classes().size() != 2)
      throw data_error(linear_.model + ": found " + std::to_string(classes().size()) + " classes, want two");
  } else {
    least_ = from.field<double>("least_target");
    greatest_ = from.field<double>("greatest_target");
    samples().label = sample_options::label_rule::real;
    read_fields(from, columns_, linear_.table);
    load_others();
  }
  const auto rows = from.read<double>("fm_row");
  table_.emplace(*this, "fm", kernel_.width());
  for_own_ids([&](const auto& ids) {
    table_->push(ids, std::span(rows).subspan(ids.front() * kernel_.width(), ids.size() * kernel_.width()));
  });
  paracel_sync();
}

std::vector<double> factorization_machine::margins(const sample_rows& rows) {
  std::vector<double> found(rows.rows());
  for_margins(rows, nullptr, [&](std::size_t i, double m) { found[i] = m; });
  return found;
}

void factorization_machine::use_model(model_writer* model) {
  std::vector<double> of_test;
  std::vector<double> of_predict;
  if (has_test()) of_test = margins(test_);
  if (!linear_.predict_input.empty()) of_predict = margins(predict_);
  if (is_log()) {
    const auto scores = [&](const sample_rows& rows, std::size_t i, std::span<double> to) {
      const double m = (&rows == &test_ ? of_test : of_predict)[i];
      to[0] = -m / 2;
      to[1] = m / 2;
      to_log_probabilities(to);
    };
    use(scores, true, false, log_, model);
    return;
  }
  std::vector<double> sums(2);
  for (std::size_t i = 0; i < of_test.size(); ++i) {
    sums[0] += weight_of_row(test_, i);
    sums[1] += weight_of_row(test_, i) * std::pow(prediction(of_test[i]) - test_.label[i], 2);
  }
  sum_over_workers(get_comm(), sums);
  const double rmse = std::sqrt(sums[1] / sums[0]);
  if (model != nullptr) {
    if (has_test()) model->fields().add("test_rmse", rmse);
    model->finish();
  }
  dump_predictions([&](std::size_t i) { return prediction(of_predict[i]); });
  if (has_test()) log_.result("test_rmse", rmse);
  log_.result("output", get_output());
}

}  // namespace paracel::alg
