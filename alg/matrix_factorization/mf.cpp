// SPDX-License-Identifier: BSD-3-Clause
#include "mf.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

#include "alg/common/load_cache_keys.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint64_t user_order_stream = 3;
constexpr std::uint64_t rating_order_stream = 4;
constexpr std::uint32_t no_slot = 0xffffffffU;
// A loss that exceeds the first one by this factor counts as divergence.
constexpr double divergence_factor = 1e3;
// Ratings between two pulls of the final measurement.
constexpr std::size_t pieces_of(std::size_t ratings) { return ratings / 65536 + 1; }

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

mf_order::mf_order(const sparse_rows& ratings)
    : ratings_(ratings),
      user_(ratings.rows()),
      begin_(ratings.rows() + 1),
      entry_(ratings.column.size()),
      slot_of_(ratings.column_ids.size(), no_slot) {
  std::iota(user_.begin(), user_.end(), 0U);
  std::iota(entry_.begin(), entry_.end(), std::uint64_t{0});
  std::copy(ratings.begin.begin(), ratings.begin.end(), begin_.begin());
}

void mf_order::shuffle(std::uint64_t seed, std::uint64_t round) {
  std::iota(user_.begin(), user_.end(), 0U);
  counter_random(seed, user_order_stream, round).shuffle(user_);
  std::uint64_t at = 0;
  for (std::size_t j = 0; j < user_.size(); ++j) {
    begin_[j] = at;
    const auto u = user_[j];
    counter_random random(seed, rating_order_stream, mix64(ratings_.row_ids.key(u)) + round);
    const auto first = ratings_.begin[u];
    const auto count = ratings_.begin[u + 1] - first;
    // Inside-out shuffle: each element is written once.
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto other = random.below(i + 1);
      entry_[at + i] = entry_[at + other];
      entry_[at + other] = first + i;
    }
    at += count;
  }
  begin_.back() = at;
}

void mf_order::cut(std::size_t number, std::size_t count, piece& into) {
  const std::uint64_t n = entry_.size();
  const std::uint64_t first = n * number / count;
  const std::uint64_t last = n * (number + 1) / count;
  into.column.clear();
  into.user.clear();
  into.run_begin.clear();
  into.slot.resize(last - first);
  into.value.resize(last - first);
  std::size_t j = static_cast<std::size_t>(std::upper_bound(begin_.begin(), begin_.end(), first) - begin_.begin()) - 1;
  for (std::uint64_t at = first; at < last; ++j) {
    const std::uint64_t end = std::min(begin_[j + 1], last);
    if (end == at) continue;
    into.user.push_back(user_[j]);
    into.run_begin.push_back(static_cast<std::uint32_t>(at - first));
    for (; at < end; ++at) {
      const auto e = entry_[at];
      auto& slot = slot_of_[ratings_.column[e]];
      if (slot == no_slot) {
        slot = static_cast<std::uint32_t>(into.column.size());
        into.column.push_back(ratings_.column[e]);
      }
      into.slot[at - first] = slot;
      into.value[at - first] = ratings_.value[e];
    }
  }
  into.run_begin.push_back(static_cast<std::uint32_t>(last - first));
  for (const auto c : into.column) slot_of_[c] = no_slot;
}

// ---- config

config_schema mf_schema() {
  config_schema s("mf", "matrix factorization with biases by stochastic gradient descent");
  s.key("input", key_type::files, "ratings: user,item,rating; further fields are ignored")
      .required_unless({"model_input"});
  add_cache_keys(s);
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.add_output_files();
  s.key("format", key_type::string, "of the model").fallback("text").one_of({"text", "npy"});
  s.key("k", key_type::integer, "factors of a user and of an item; 0: biases alone")
      .fallback(80)
      .at_least(0)
      .at_most(4096);
  s.key("rounds", key_type::integer, "passes over the ratings").fallback(1).at_least(1).at_most(1000000);
  s.key("alpha", key_type::number, "step size").fallback(0.005).above(0);
  s.key("beta", key_type::number, "weight of the regulariser").fallback(0.01).at_least(0);
  s.key("start", key_type::number, "standard deviation of the factors before the first step").fallback(0.1).at_least(0);
  s.key("clocks_per_round", key_type::integer, "pieces of a pass; items are exchanged once a piece")
      .fallback(10)
      .at_least(1)
      .at_most(1000000);
  s.key("tolerance", key_type::number, "stop when a round changes the loss by less than this fraction; 0: never")
      .fallback(0.0)
      .at_least(0);
  s.key("seed", key_type::integer, "of the start and of the order of the ratings").fallback(0).at_least(0);
  add_consistency_keys(s, "clocks", "bsp", {consistency_model::bsp, consistency_model::ssp});
  s.key("min_rating", key_type::number, "predictions are not below it; default: the least rating of the input");
  s.key("max_rating", key_type::number, "predictions are not above it; default: the greatest rating of the input");
  s.key("debug", key_type::boolean, "print the loss of each round").fallback(false);
  s.key("update_file", key_type::plugin, "plug-in that applies deltas to items in the servers; default: they are added")
      .not_resumable();
  s.key("update_functions", key_type::strings, "its functions of counts, of the factors, of the biases");
  s.key("filter_file", key_type::plugin, "with update_file: plug-in that selects the part of the model to be written");
  s.key("filter_functions", key_type::strings,
        "its filters of users' biases, items' biases, users' and items' factors; and of how many workers have each "
        "user and item, which are written if these are given");
  recommend_settings::add_keys(s);
  return s;
}

mf_settings::mf_settings(const config& from)
    : input(from.get<std::vector<std::string>>("input")),
      output(from.get<std::string>("output")),
      format(from.get<std::string>("format")),
      cache(cache_options(from)),
      k(from.get<std::size_t>("k")),
      rounds(from.get<int>("rounds")),
      clocks_per_round(from.get<int>("clocks_per_round")),
      alpha(from.get<double>("alpha")),
      beta(from.get<double>("beta")),
      start(from.get<double>("start")),
      tolerance(from.get<double>("tolerance")),
      seed(from.get<std::uint64_t>("seed")),
      consistency(read_consistency(from, consistency::bsp())),
      debug(from.get<bool>("debug")),
      use(from),
      update(read_state_plugin(from, "update_file", "update_functions",
                               {"cnt_updater", "mf_fac_updater", "mf_bias_updater"})),
      filter(read_state_plugin(from, "filter_file", "filter_functions",
                               {"mf_ubias_filter", "mf_ibias_filter", "mf_W_filter", "mf_H_filter", "", ""})) {
  if (!use.model_input.empty())
    refuse_keys(from, {"update_file", "filter_file"}, "not with model_input: nothing is trained");
  if (filter.given() && !update.given())
    throw config_error(from.place_of("filter_file") + ": found it without update_file, which gives the model keys");
  if (from.given("min_rating")) limits.least = from.get<double>("min_rating");
  if (from.given("max_rating")) limits.most = from.get<double>("max_rating");
  if (limits.least > limits.most)
    throw config_error(from.place_of("min_rating") +
                       ": found a number above max_rating, want min_rating <= max_rating");
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
      log_(*this, settings.rounds, "running_rmse", settings.debug) {}

void matrix_factorization::solve() {
  if (!settings_.use.model_input.empty()) {
    const auto saved = open_model(settings_.use.model_input, "mf");
    factor_tables model(*this, "mf", saved.k);
    serve_model(*this, settings_.use.model_input, "mf", model);
    use_model(*this, log_, model, settings_.use, saved.scale, nullptr, {});
    log_.result("output", get_output());
    return;
  }
  load();
  train();
  measure();
  write();
}

void matrix_factorization::load() {
  auto options = rating_options();
  options.values = entry_options::value_rule::need;
  options.cache = settings_.cache;
  ratings_ = load_sparse(get_comm(), settings_.input, options);
  if (ratings_.entries_total == 0)
    throw data_error(settings_.input.front() + ":1:1: found no rating, want user,item,rating");
  scale_ = scale_of(get_comm(), ratings_.value);
  if (std::isfinite(settings_.limits.least)) scale_.least = settings_.limits.least;
  if (std::isfinite(settings_.limits.most)) scale_.most = settings_.limits.most;

  const std::size_t width = row_width(settings_.k);
  users_.resize(ratings_.rows() * width);
  for (std::size_t u = 0; u < ratings_.rows(); ++u) {
    start_row(std::span(users_).subspan(u * width, width), settings_.seed, user_stream, ratings_.row_ids.key(u),
              settings_.start);
  }
  model_.emplace(*this, "mf", settings_.k);
  ratings_total_ = ratings_.entries_total;
  if (settings_.update.given()) {
    keyed_.emplace(*this, settings_.k, settings_.update);
    ratings_total_ = keyed_->count_ratings(ratings_.column.size());
    if (settings_.counts_workers() && !resumed()) keyed_->count_worker(ratings_.row_ids, ratings_.column_ids);
  }
  item_keys_ = keys_of(ratings_.column_ids);
  if (resumed()) return paracel_sync();
  // Every worker pushes the initial rows of the items that it needs; they are the same on all workers.
  constexpr std::size_t block = 65536;
  for (std::size_t first = 0; first < item_keys_.size(); first += block) {
    const std::size_t count = std::min(block, item_keys_.size() - first);
    rows_.resize(count * width);
    for (std::size_t c = 0; c < count; ++c) {
      start_row(std::span(rows_).subspan(c * width, width), settings_.seed, item_stream, item_keys_[first + c],
                settings_.start);
    }
    if (!keyed_) {
      model_->items().push(std::span(item_keys_).subspan(first, count), rows_);
      continue;
    }
    item_ids_.clear();
    for (std::size_t c = first; c < first + count; ++c) item_ids_.push_back(ratings_.column_ids.text(c));
    keyed_->push(item_ids_, rows_);
  }
  paracel_sync();
}

/// Sets rows_ to those of the piece's items.
void matrix_factorization::pull_piece() {
  const auto count = piece_.column.size();
  rows_.resize(count * row_width(settings_.k));
  if (keyed_) {
    item_ids_.clear();
    for (const auto c : piece_.column) item_ids_.push_back(ratings_.column_ids.text(c));
    return keyed_->pull(item_ids_, rows_);
  }
  keys_.resize(count);
  for (std::size_t j = 0; j < count; ++j) keys_[j] = item_keys_[piece_.column[j]];
  model_->items().pull(keys_, rows_);
}

void matrix_factorization::train() {
  mf_order order(ratings_);
  const std::int64_t clocks = settings_.clocks_per_round;
  std::int64_t shuffled = -1;  // the round in whose order the ratings are
  double last = 0;
  double loss = 0;
  resumable_loop loop(*this);
  loop.keep("users", users_).keep("loss", loss).keep("last", last).keep("collected", collected_);
  loop.keep("first_loss", first_loss_).always_commits();
  while (loop.next(settings_.rounds * clocks)) {
    const auto round = loop.iteration() / clocks;
    const auto clock = loop.iteration() % clocks;
    if (std::exchange(shuffled, round) != round) order.shuffle(settings_.seed, static_cast<std::uint64_t>(round));
    if (clock == 0) {
      // All updates are applied but those of the newest `staleness` clocks.
      const auto settled = loop.iteration() - static_cast<std::int64_t>(settings_.consistency.staleness);
      if (round > 0 && get_worker_id() == 0) collect(static_cast<int>(round) - 1, static_cast<int>(settled / clocks));
      loss = 0;
    }
    order.cut(static_cast<std::size_t>(clock), static_cast<std::size_t>(clocks), piece_);
    loss += train_piece();
    if (clock + 1 < clocks) continue;
    if (!ratings_.value.empty()) {  // rank 0 does not wait for it, and the key would be left behind
      const std::vector<double> part{static_cast<double>(ratings_.value.size()), loss};
      paracel_update(round_key(static_cast<int>(round)), part, default_plugin, default_add);
    }
    if (settings_.tolerance == 0) continue;
    auto total = loss;
    get_comm().allreduce(total);
    if (round > 0 && std::abs(last - total) <= settings_.tolerance * last) loop.stop();
    last = total;
  }
  rounds_done_ = static_cast<int>(loop.iteration() / clocks);
  // Otherwise ssp would not wait for the updates of a run that ends early.
  set_total_iters(static_cast<int>(loop.iteration()));
  paracel_sync();
  if (get_worker_id() == 0) collect(rounds_done_ - 1, rounds_done_);
}

/// Cost: one pull and one push of the piece's items.
double matrix_factorization::train_piece() {
  const std::size_t width = row_width(settings_.k);
  pull_piece();
  old_ = rows_;
  const sgd_step step{settings_.k, scale_.mean, settings_.alpha, settings_.beta};
  double loss = 0;
  for (std::size_t j = 0; j < piece_.user.size(); ++j) {
    const std::size_t first = piece_.run_begin[j];
    const std::size_t count = piece_.run_begin[j + 1] - first;
    loss += sgd_run(step, users_.data() + piece_.user[j] * width, rows_.data(),
                    std::span(piece_.slot).subspan(first, count), std::span(piece_.value).subspan(first, count));
  }
  steps_.assign(piece_.column.size(), 0);
  if (get_worker_size() > 1) {
    for (const auto slot : piece_.slot) ++steps_[slot];
  }
  for (std::size_t j = 0; j < steps_.size(); ++j) {
    const double share = item_share(settings_.alpha, steps_[j], get_worker_size());
    for (std::size_t i = j * width; i < (j + 1) * width; ++i) rows_[i] = share * (rows_[i] - old_[i]);
  }
  if (keyed_) keyed_->update(item_ids_, rows_);
  else model_->items().update(keys_, rows_);
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
      ++collected_;  // this process is in the place of one that has taken it
      continue;
    }
    if (sum.size() != 2 || (sum[0] < static_cast<double>(ratings_.entries_total) && !is_settled)) break;
    paracel_remove(round_key(collected_));
    if (collected_ == 0) first_loss_ = sum[1];
    if (!std::isfinite(sum[1]) || sum[1] > divergence_factor * first_loss_) {
      throw error("mf: diverged at round " + std::to_string(collected_ + 1) + ": the loss was " +
                  std::to_string(first_loss_) + " and is " + std::to_string(sum[1]) + "; lower alpha");
    }
    log_.round(collected_ + 1, std::sqrt(sum[1] / sum[0]), {{"staleness", last_staleness()}});
    ++collected_;
  }
}

/// The exact loss and objective of the current model.
void matrix_factorization::measure() {
  const std::size_t width = row_width(settings_.k);
  mf_order order(ratings_);
  std::vector<double> sums(4);  // e^2, e^2 after clamping, squares of the parameters of each rating, ratings
  const auto square = [&](const double* row) {
    return row[bias_at] * row[bias_at] + dot(row + factors_at, row + factors_at, settings_.k);
  };
  const std::size_t pieces = pieces_of(ratings_.column.size());
  for (std::size_t p = 0; p < pieces; ++p) {
    order.cut(p, pieces, piece_);
    pull_piece();
    for (std::size_t j = 0; j < piece_.user.size(); ++j) {
      const double* u = users_.data() + piece_.user[j] * width;
      const double user_square = square(u);
      for (std::size_t t = piece_.run_begin[j]; t < piece_.run_begin[j + 1]; ++t) {
        const double* h = rows_.data() + piece_.slot[t] * width;
        const double p_ui = scale_.mean + u[bias_at] + h[bias_at] + dot(u + factors_at, h + factors_at, settings_.k);
        const double e = piece_.value[t] - p_ui;
        const double clamped = piece_.value[t] - scale_.clamp(p_ui);
        sums[0] += e * e;
        sums[1] += clamped * clamped;
        sums[2] += user_square + square(h);
        sums[3] += 1;
      }
    }
  }
  get_comm().allreduce(sums);
  log_.result("rounds", static_cast<std::uint64_t>(rounds_done_));
  log_.result("objective", sums[0] + settings_.beta / 2 * sums[2]);
  log_.result("loss", sums[0]);
  log_.result("rmse", std::sqrt(sums[1] / sums[3]));
}

void matrix_factorization::write() {
  const std::size_t width = row_width(settings_.k);
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
  rows_.resize(keys_.size() * width);
  std::optional<model_selection> only;
  if (keyed_) {
    item_ids_.clear();
    for (std::size_t i = 0; i < ids.size(); ++i) item_ids_.push_back(ids.text(i));
    keyed_->pull(item_ids_, rows_);
    if (settings_.filter.given()) only = keyed_->select(settings_.filter, ratings_.row_ids, users_, ids);
  } else {
    model_->items().pull(keys_, rows_);
  }
  write_model(*this, "mf", settings_.format, settings_.k, scale_, ratings_total_,
              {users_, &ratings_.row_ids, rows_, &ids, only ? &*only : nullptr});

  if (settings_.counts_workers()) {
    const auto& filter = settings_.filter;
    const auto& f = filter.functions;
    if (!f[4].empty()) paracel_dump_vector(keyed_->user_counts(filter.file, f[4], ratings_.row_ids), "cntx_", "\n");
    if (!f[5].empty()) paracel_dump_vector(keyed_->item_counts(filter.file, f[5], ids), "cnty_", "\n");
  }
  const auto& use = settings_.use;
  if (keyed_) push_rows(model_->items(), keys_, rows_);
  if (!use.test_input.empty() || !use.predict_input.empty() || use.recommend > 0) {
    push_rows(model_->users(), keys_of(ratings_.row_ids), users_);
    paracel_sync();
    use_model(*this, log_, *model_, use, scale_, &ratings_, users_);
  }
  log_.result("output", get_output());
}

}  // namespace paracel::alg
