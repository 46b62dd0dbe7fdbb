// SPDX-License-Identifier: BSD-3-Clause
#include "mf.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

#include "alg/common/output/load_cache_keys.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/column_shift.hpp"
#include "alg/common/solvers/huge_pages.hpp"
#include "alg/common/solvers/sgd_kernel.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Ratings per pull in the final measurement, unless a single user has more.
constexpr std::uint64_t measured_at_once = 65536;

constexpr const char* default_plugin = "libparacel_default.so";
constexpr const char* default_add = "paracel_add";
std::string round_key(int round) { return "mf_round_" + std::to_string(round); }

}  // namespace

void start_row(std::span<double> row, std::uint64_t seed, std::uint64_t stream, std::uint64_t key, double sd) {
  counter_random random(seed, stream, key);
  row[bias_at] = 0;
  row[known_at] = 1;
  for (auto& v : row.subspan(factors_at)) v = sd * random.normal();
}

double item_share(double alpha, std::uint32_t steps, std::size_t workers) {
  if (workers == 1 || steps == 0) return 1;
  const double way = 2 * alpha * steps;
  const auto w = static_cast<double>(workers);
  return std::expm1(-w * way) / (w * std::expm1(-way));
}

// ---- config

void mf_settings::keys(key_list& to) {
  to.files("input", input, "ratings: user,item,rating; further fields are ignored").required_unless({"model_input"});
  cache_keys(to, cache);
  output_keys(to, output);
  format_key(to, format, "format of the model");
  to("k", k, "number of factors of a user and of an item; 0: biases alone").at_least(0).at_most(4096);
  to("method", method,
     "sgd: stochastic gradient descent; cg, bfgs: non-linear conjugate gradients or limited-memory BFGS on the "
     "objective of als",
     {{"sgd", mf_method::sgd}, {"cg", mf_method::cg}, {"bfgs", mf_method::bfgs}});
  to("rounds", rounds, "sgd: passes over the ratings; cg, bfgs: maximum number of steps, default 1000")
      .at_least(1)
      .at_most(1000000);
  to("alpha", alpha, "sgd: step size").above(0);
  to("beta", beta, "sgd: weight of the regulariser").at_least(0);
  to("lambda", penalties.lambda, "cg, bfgs: penalty of the factors").at_least(0);
  to("lambda_bias", penalties.lambda_bias, "cg, bfgs: penalty of the biases").at_least(0);
  to("weighted", penalties.weighted, "cg, bfgs: multiply the penalties of a row by its number of ratings");
  to("factors", single, "sgd: type of the factors and biases in training; always float64 with update_file, cg or bfgs",
     {{"float32", true}, {"float64", false}});
  to("start", start, "standard deviation of the factors before the first step").at_least(0);
  to("clocks_per_round", clocks_per_round, "sgd: pieces of a pass; items are exchanged once per piece")
      .at_least(1)
      .at_most(1000000);
  to("tolerance", tolerance,
     "stop when a round changes the loss by less than this fraction; cg, bfgs: when three rounds change the "
     "objective by less, default 1e-5; 0: never")
      .at_least(0);
  to("seed", seed, "seed of the initial factors and of the order of the ratings").at_least(0);
  consistency = by_sgd() ? consistency::bsp() : consistency::asp();
  consistency_keys(to, consistency, "clocks", "bsp", {consistency_model::bsp, consistency_model::ssp});
  limits.keys(to);
  to("debug", debug, "print the loss of each round");
  to.plugin("update_file", update.file, "plug-in that applies deltas to items in the servers; default: they are added")
      .not_resumable();
  update.functions_key(to, "update_file", "update_functions",
                       "functions of update_file: for counts, factors and biases",
                       {"cnt_updater", "mf_fac_updater", "mf_bias_updater"});
  to.plugin("filter_file", filter.file, "with update_file: plug-in that selects the part of the model to be written");
  filter.functions_key(
      to, "filter_file", "filter_functions",
      "functions of filter_file: for users' biases, items' biases, users' factors and items' factors; if given, also "
      "for the numbers of workers that have each user and each item, which are then written",
      {"mf_ubias_filter", "mf_ibias_filter", "mf_W_filter", "mf_H_filter", "", ""});
  use.keys(to);
}

void mf_settings::check(const config& from) {
  k_place = place_if_given(from, "k");
  if (by_sgd()) {
    refuse_keys(from, {"lambda", "lambda_bias", "weighted"}, "not with method sgd, whose penalty is beta");
  } else {
    const auto name = from.get<std::string>("method");
    refuse_keys(from, {"alpha", "beta", "clocks_per_round", "factors", "consistency", "ssp_switch", "limit_s"},
                "not with method " + name + "; only with sgd");
    refuse_keys(from, {"update_file", "filter_file"},
                "not with method " + name + ", which updates nothing in the servers");
    if (!from.given("rounds")) rounds = 1000;
    if (!from.given("tolerance")) tolerance = 1e-5;
    clocks_per_round = 1;
  }
  if (!use.model_input.empty())
    refuse_keys(from, {"update_file", "filter_file"}, "not with model_input: nothing is trained");
  if (use.initial.given())
    refuse_keys(from, {"filter_file"}, "not with initial_model, whose users and items are all written again");
  if (update.given() && from.given("factors") && single)
    throw config_error(from.place_of("factors") + ": found float32 with update_file, whose values are float64");
  single = single && by_sgd() && !from.given("update_file");
  if (filter.given() && !update.given())
    throw config_error(from.place_of("filter_file") + ": given without update_file, which stores the model under keys");
  if (rounds > std::numeric_limits<int>::max() / clocks_per_round) {
    throw config_error(from.place_of("rounds") + ": found " + std::to_string(rounds) +
                       ", want at most 2^31 - 1 clocks in " + "all; a round has " + std::to_string(clocks_per_round));
  }
}

// ---- the job

matrix_factorization::matrix_factorization(Comm comm, const std::string& server_info, const mf_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds * settings.clocks_per_round,
             settings.consistency),
      settings_(settings),
      log_(*this, settings.rounds, settings.by_sgd() ? "running_rmse" : "objective", settings.debug) {}

void matrix_factorization::solve() {
  if (!settings_.use.model_input.empty()) {
    const auto saved = open_model(settings_.use.model_input, "mf");
    factor_tables model(*this, "mf", saved.k);
    serve_model(*this, settings_.use.model_input, "mf", model);
    use_model(*this, log_, model, settings_.use, saved.scale, nullptr, {});
    log_.result("output", get_output());
    return;
  }
  if (settings_.use.initial.given()) {
    initial_.emplace(settings_.use.initial.path, "mf", settings_.k, settings_.k_place);
    settings_.k = initial_->head().k;
  }
  load();
  if (!settings_.by_sgd()) minimize();
  else if (settings_.single) train<float>();
  else train<double>();
  measure();
  write();
}

void matrix_factorization::load() {
  auto options = rating_options(settings_.use.entries);
  options.values = entry_options::value_rule::need;
  options.cache = settings_.cache;
  ratings_ = load_sparse(get_comm(), settings_.input, options);
  require_some(ratings_.entries_total, settings_.input, "rating, want user,item,rating");
  scale_ = scale_of(get_comm(), ratings_.value);
  check_sum_of_squares(scale_.greatest(), ratings_.entries_total, settings_.input.front(), "ratings");
  if (initial_) scale_ = initial_->with(scale_);
  watch_loss();
  settings_.limits.apply(scale_);

  ratings_total_ = ratings_.entries_total;
  item_keys_ = keys_of(ratings_.column_ids);
  if (settings_.update.given()) {
    keyed_.emplace(*this, settings_.k, settings_.update);
    ratings_total_ = keyed_->count_ratings(ratings_.column.size());
    if (settings_.counts_workers() && !resumed()) keyed_->count_worker(ratings_.row_ids, ratings_.column_ids);
  } else if (settings_.single) {
    single_items_.emplace(*this, "mf_items_float32", row_width(settings_.k));
  } else {
    model_.emplace(*this, "mf", settings_.k);
  }
}

/// What the mean squared error is watched for. At the start it is that of the mean and of random factors.
void matrix_factorization::watch_loss() {
  std::vector<double> sums(2);  // squares of the ratings, and of their deviations from the mean
  for (const double r : ratings_.value) {
    sums[0] += r * r;
    sums[1] += (r - scale_.mean) * (r - scale_.mean);
  }
  sum_over_workers(get_comm(), sums);
  const auto n = static_cast<double>(ratings_.entries_total);
  // Floats would lose ratings that differ by little for their size.
  constexpr double far = 16;
  if (std::abs(scale_.mean) > far * std::max(scale_.most - scale_.mean, scale_.mean - scale_.least))
    offset_ = scale_.mean;
  spread_ = std::sqrt(sums[1] / n);
  if (settings_.by_sgd()) warn_of_spread(get_comm(), "the ratings", spread_, "alpha, beta and start");
  start_loss_ = sums[1] / n + static_cast<double>(settings_.k) * std::pow(settings_.start, 4);
  const auto remedy = settings_.by_sgd()
                          ? "lower alpha (now " + json_number(settings_.alpha) + ")"
                          : std::string("want smaller numbers in the ratings, lambda, lambda_bias or start");
  rule_ = {"the mean squared error", remedy, 2 * scale_of_squares(sums[0], n)};
}

template <>
table<float>& matrix_factorization::items() {
  return *single_items_;
}
template <>
table<double>& matrix_factorization::items() {
  return model_->items();
}

void matrix_factorization::start_user(std::size_t own_user, std::span<double> row) const {
  const auto key = ratings_.row_ids.key(own_user);
  start_row(row, settings_.seed, user_stream, key, settings_.start);
  if (initial_) initial_->take_user(key, row);
}

void matrix_factorization::start_item(std::uint64_t key, std::span<double> row) const {
  start_row(row, settings_.seed, item_stream, key, settings_.start);
  if (initial_) initial_->take_item(key, row);
}

/// Sets the initial rows. A collective.
template <class Real>
void matrix_factorization::start(training<Real>& part) {
  const std::size_t width = row_width(settings_.k);
  std::vector<double> row(width);
  reserve_huge(part.users, ratings_.rows() * width);
  part.users.resize(ratings_.rows() * width);
  for (std::size_t u = 0; u < ratings_.rows(); ++u) {
    start_user(u, row);
    std::ranges::copy(row, part.users.begin() + static_cast<std::ptrdiff_t>(u * width));
  }
  if (resumed()) return paracel_sync();
  // Every worker pushes the initial rows of the items that it needs; they are the same on all workers.
  constexpr std::size_t block = 65536;
  for (std::size_t first = 0; first < item_keys_.size(); first += block) {
    const std::size_t count = std::min(block, item_keys_.size() - first);
    part.rows.resize(count * width);
    for (std::size_t c = 0; c < count; ++c) {
      start_item(item_keys_[first + c], row);
      std::ranges::copy(row, part.rows.begin() + static_cast<std::ptrdiff_t>(c * width));
    }
    if constexpr (std::is_same_v<Real, double>) {
      if (keyed_) {
        item_ids_.clear();
        for (std::size_t c = first; c < first + count; ++c) item_ids_.push_back(ratings_.column_ids.text(c));
        keyed_->push(item_ids_, part.rows);
        continue;
      }
    }
    items<Real>().push(std::span(item_keys_).subspan(first, count), part.rows);
  }
  paracel_sync();
}

/// Selects the items of the next `pull` and updates.
void matrix_factorization::choose(std::span<const std::uint32_t> columns) {
  if (keyed_) {
    item_ids_.clear();
    for (const auto c : columns) item_ids_.push_back(ratings_.column_ids.text(c));
  } else {
    keys_.clear();
    for (const auto c : columns) keys_.push_back(item_keys_[c]);
  }
}

/// The rows of the chosen items.
template <class Real>
void matrix_factorization::pull(std::vector<Real>& rows) {
  const std::size_t width = row_width(settings_.k);
  if constexpr (std::is_same_v<Real, double>) {
    if (keyed_) {
      rows.resize(item_ids_.size() * width);
      return keyed_->pull(item_ids_, rows);
    }
    if (single_items_) {
      std::vector<float> narrow;
      pull(narrow);
      rows.assign(narrow.begin(), narrow.end());
      return;
    }
  }
  rows.resize(keys_.size() * width);
  items<Real>().pull(keys_, rows);
}

template <class Real>
void matrix_factorization::train() {
  training<Real> part;
  start(part);
  mf_order<Real> order(ratings_, settings_.seed, offset_);
  const std::int64_t clocks = settings_.clocks_per_round;
  std::int64_t shuffled = -1;  // the round for which the users are ordered
  double last = 0;
  double change = 0;  // of the loss, in the last round
  double loss = 0;
  resumable_loop loop(*this);
  loop.keep("users", part.users).keep("loss", loss).keep("last", last).keep("collected", collected_);
  loop.keep("change", change);
  loop.always_commits();
  while (loop.next(settings_.rounds * clocks)) {
    const auto round = loop.iteration() / clocks;
    const auto clock = loop.iteration() % clocks;
    if (std::exchange(shuffled, round) != round) order.shuffle(rounds_before() + static_cast<std::uint64_t>(round));
    if (clock == 0) {
      // All updates have been applied except those of the newest `staleness` clocks.
      const auto settled = loop.iteration() - static_cast<std::int64_t>(settings_.consistency.staleness);
      if (round > 0 && get_worker_id() == 0) collect(static_cast<int>(round) - 1, static_cast<int>(settled / clocks));
      loss = 0;
    }
    order.cut(static_cast<std::size_t>(clock), static_cast<std::size_t>(clocks), part.piece);
    loss += train_piece(order, part);
    if (clock + 1 < clocks) continue;
    if (!ratings_.value.empty()) {  // rank 0 does not wait for an empty part, and the key would be left behind
      const std::vector<double> sum{static_cast<double>(ratings_.value.size()), loss};
      paracel_update(round_key(static_cast<int>(round)), sum, {default_plugin, default_add});
    }
    if (settings_.tolerance == 0) continue;
    auto total = loss;
    get_comm().allreduce(total);
    change = round > 0 && last != total ? std::abs(last - total) / last : 0;
    if (round > 0 && change <= settings_.tolerance) loop.stop();
    last = total;
  }
  rounds_done_ = static_cast<int>(loop.iteration() / clocks);
  // Otherwise ssp would not wait for the updates of a run that ends early.
  set_total_iters(static_cast<int>(loop.iteration()));
  paracel_sync();
  if (get_worker_id() == 0) collect(rounds_done_ - 1, rounds_done_);
  if (change > settings_.tolerance && settings_.tolerance > 0)
    warn_not_converged(get_comm(), rounds_done_, "the last change of the loss", change, settings_.tolerance);
  if constexpr (std::is_same_v<Real, double>) users_ = std::move(part.users);
  else users_.assign(part.users.begin(), part.users.end());
}

/// Cost: one pull and one push of the piece's items.
template <class Real>
double matrix_factorization::train_piece(const mf_order<Real>& order, training<Real>& part) {
  const std::size_t width = row_width(settings_.k);
  const auto& piece = part.piece;
  auto& rows = part.rows;
  choose(piece.column);
  pull(rows);
  part.old = rows;
  const sgd_step step{settings_.k, scale_.mean - offset_, settings_.alpha, settings_.beta};
  const double loss =
      sgd_pass<Real>(step, part.users.data(), rows.data(),
                     {piece.user, piece.begin, piece.end, order.columns(), order.values(), order.slots()});
  for (std::size_t j = 0; j < piece.column.size(); ++j) {
    const auto share = static_cast<Real>(item_share(settings_.alpha, piece.steps[j], get_worker_size()));
    for (std::size_t i = j * width; i < (j + 1) * width; ++i) rows[i] = share * (rows[i] - part.old[i]);
  }
  if constexpr (std::is_same_v<Real, double>) {
    if (keyed_) {
      keyed_->update(item_ids_, rows);
      return loss;
    }
  }
  items<Real>().update(keys_, rows);
  return loss;
}

/// Reads the losses of complete rounds: each worker adds the number of its ratings and its loss to the key of the
/// round, so that no worker waits. Rounds before `settled` receive no more: a worker that was ejected sends none, and
/// the mean is over the ratings of the others.
void matrix_factorization::collect(int newest, int settled) {
  std::vector<double> sum;
  while (collected_ <= newest) {
    const bool is_settled = collected_ < settled;
    if (!paracel_read(round_key(collected_), sum)) {
      if (!is_settled) break;
      ++collected_;  // the process that this one replaces has read and removed it
      continue;
    }
    if (sum.size() != 2 || (sum[0] < static_cast<double>(ratings_.entries_total) && !is_settled)) break;
    paracel_remove(round_key(collected_));
    check_divergence(rule_, collected_ + 1, sum[1] / sum[0], start_loss_);
    log_.round(collected_ + 1, std::sqrt(sum[1] / sum[0]), {{"staleness", last_staleness()}});
    ++collected_;
  }
}

/// The exact loss and objective of the current model.
void matrix_factorization::measure() {
  const std::size_t width = row_width(settings_.k);
  column_slots slots(ratings_.column_ids.size());
  std::vector<double> rows;
  std::vector<double> sums(4);  // e^2, e^2 after clamping, squares of the parameters of each rating, ratings
  const auto square = [&](const double* row) {
    return row[bias_at] * row[bias_at] + dot(row + factors_at, row + factors_at, settings_.k);
  };
  for (std::size_t first = 0, last = 0; first < ratings_.rows(); first = last) {
    const auto limit = ratings_.begin[first] + measured_at_once;
    slots.clear();
    do {
      for (const auto c : ratings_.columns_of(last)) (void)slots.of(c);
      ++last;
    } while (last < ratings_.rows() && ratings_.begin[last + 1] <= limit);
    choose(slots.columns());
    pull(rows);
    for (std::size_t i = first; i < last; ++i) {
      const double* u = users_.data() + i * width;
      const double user_square = square(u);
      for (auto e = ratings_.begin[i]; e < ratings_.begin[i + 1]; ++e) {
        const double* h = rows.data() + slots.of(ratings_.column[e]) * width;
        const double p_ui = scale_.mean + u[bias_at] + h[bias_at] + dot(u + factors_at, h + factors_at, settings_.k);
        const double error = ratings_.value[e] - p_ui;
        const double clamped = ratings_.value[e] - scale_.clamp(p_ui);
        sums[0] += error * error;
        sums[1] += clamped * clamped;
        sums[2] += user_square + square(h);
        sums[3] += 1;
      }
    }
  }
  get_comm().allreduce(sums);
  check_divergence(rule_, rounds_done_, sums[0] / sums[3], start_loss_);
  log_.result("rounds", static_cast<std::uint64_t>(rounds_done_));
  log_.result("objective", settings_.by_sgd() ? sums[0] + settings_.beta / 2 * sums[2] : objective_);
  log_.result("loss", sums[0]);
  log_.result("rmse", std::sqrt(sums[1] / sums[3]));
}

void matrix_factorization::write() {
  // Each worker writes a range of the items.
  const auto items = all_column_ids(get_comm(), ratings_);
  const std::size_t first = items.size() * get_worker_id() / get_worker_size();
  const std::size_t last = items.size() * (get_worker_id() + 1) / get_worker_size();
  auto ids = id_list::empty(items.numeric());
  for (std::size_t i = first; i < last; ++i) {
    if (items.numeric()) ids.push_back(items.number(i));
    else ids.push_back(items.name(i));
  }
  keys_ = keys_of(ids);
  item_ids_.clear();
  if (keyed_) {
    for (std::size_t i = 0; i < ids.size(); ++i) item_ids_.push_back(ids.text(i));
  }
  std::vector<double> rows;
  pull(rows);
  std::optional<model_selection> only;
  if (settings_.filter.given()) only = keyed_->select(settings_.filter, ratings_.row_ids, users_, ids);
  factor_rows of_items{std::move(ids), std::move(rows)};
  factor_rows of_users;  // with those of the initial model
  model_parts parts{users_, &ratings_.row_ids, of_items.rows, &of_items.ids, only ? &*only : nullptr};
  if (initial_) {
    of_users = {ratings_.row_ids, users_};
    of_users.add(initial_->other_users(get_comm(), keys_of(ratings_.row_ids)));
    of_items.add(initial_->other_items(get_comm(), item_keys_));
    parts.users = of_users.rows;
    parts.user_ids = &of_users.ids;
    parts.items = of_items.rows;
  }
  write_model(*this, "mf", settings_.format, settings_.k, scale_, ratings_total_, parts,
              rounds_before() + static_cast<std::uint64_t>(rounds_done_));

  if (settings_.counts_workers()) {
    const auto& filter = settings_.filter;
    const auto& f = filter.functions;
    if (!f[4].empty()) paracel_dump_vector(keyed_->user_counts(filter.file, f[4], ratings_.row_ids), "cntx_", "\n");
    if (!f[5].empty()) paracel_dump_vector(keyed_->item_counts(filter.file, f[5], of_items.ids), "cnty_", "\n");
  }
  const auto& use = settings_.use;
  if (!use.test_input.empty() || !use.predict_input.empty() || use.recommend > 0) {
    const bool in_servers = model_.has_value();
    if (!in_servers) model_.emplace(*this, "mf", settings_.k);
    if (!in_servers || initial_) push_rows(model_->items(), keys_of(of_items.ids), of_items.rows);
    push_rows(model_->users(), keys_of(*parts.user_ids), parts.users);
    paracel_sync();
    use_model(*this, log_, *model_, use, scale_, &ratings_, users_);
  }
  log_.result("output", get_output());
}

}  // namespace paracel::alg
