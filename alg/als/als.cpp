// SPDX-License-Identifier: BSD-3-Clause
#include "als.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>
#include <paracel/samples.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/load_cache_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/server_state.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/column_shift.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint64_t start_stream = 5;

bool has_bias(als_form form) { return form == als_form::explicit_ratings; }

double weight_of(const als_model& model, std::size_t ratings) {
  return model.form == als_form::explicit_ratings && model.weighted ? static_cast<double>(ratings) : 1.0;
}

double row_penalty(const als_model& model, const double* row, double weight) {
  const double* w = row + factors_at;
  return weight * (model.lambda * dot(w, w, model.k) + model.lambda_bias * row[bias_at] * row[bias_at]);
}

}  // namespace

als_sums als_half_step(const als_model& model, const sparse_rows& ratings, std::span<const double> others,
                       std::span<const double> gram, std::span<double> own) {
  const std::size_t k = model.k;
  const std::size_t width = row_width(k);
  // With a bias the features are 1 and the factors, which are contiguous in a row.
  const bool bias = has_bias(model.form);
  const std::size_t d = bias ? k + 1 : k;
  const std::size_t from = bias ? known_at : factors_at;
  row_solver solver(d);
  std::vector<double> penalty(d);
  std::vector<double> z(d);
  std::vector<double> extra;
  als_sums sums;
  for (std::size_t i = 0; i < ratings.rows(); ++i) {
    const auto columns = ratings.columns_of(i);
    const auto values = ratings.values_of(i);
    const double weight = weight_of(model, columns.size());
    std::fill(penalty.begin(), penalty.end(), weight * model.lambda);
    if (bias) penalty[0] = weight * model.lambda_bias;
    solver.clear();
    extra.clear();
    for (std::size_t e = 0; e < columns.size(); ++e) {
      const double* other = others.data() + columns[e] * width;
      double target = values[e] - model.mean - other[bias_at];
      if (model.form == als_form::implicit_ratings) {
        extra.push_back(model.alpha * values[e]);
        target = values[e] > 0 ? 1 + model.alpha * values[e] : 0;
      }
      const auto x = solver.add(target);
      std::copy_n(other + from, d, x.begin());
    }
    double* row = own.data() + i * width;
    if (model.form == als_form::implicit_ratings) {
      if (model.cg_steps == 0) {
        solver.solve_implicit(extra, gram, penalty, z);
      } else {
        std::copy_n(own.data() + i * width + from, d, z.begin());
        solver.improve_implicit(extra, gram, penalty, model.cg_steps, z);
      }
      for (std::size_t e = 0; e < columns.size(); ++e) {
        const double y = solver.product(e, z);
        const double miss = (values[e] > 0 ? 1 : 0) - y;
        sums.squares += (1 + extra[e]) * miss * miss - y * y;
      }
    } else {
      solver.solve(penalty, z);
      sums.squares += solver.residual(z);
    }
    row[bias_at] = bias ? z[0] : 0;
    row[known_at] = 1;
    std::copy_n(z.begin() + (bias ? 1 : 0), k, row + factors_at);
    sums.penalty += row_penalty(model, row, weight);
  }
  return sums;
}

double als_penalty(const als_model& model, const sparse_rows& ratings, std::span<const double> own) {
  double sum = 0;
  for (std::size_t i = 0; i < ratings.rows(); ++i) {
    sum += row_penalty(model, own.data() + i * row_width(model.k), weight_of(model, ratings.columns_of(i).size()));
  }
  return sum;
}

std::vector<double> factor_gram(std::size_t k, std::span<const double> rows) {
  const std::size_t width = row_width(k);
  const std::size_t stride = (k + 3) / 4 * 4;
  const std::size_t count = rows.size() / width;
  std::vector<double> lower(stride * stride);
  std::vector<double> block;
  constexpr std::size_t at_once = 256;
  for (std::size_t first = 0; first < count; first += at_once) {
    const std::size_t some = std::min(at_once, count - first);
    block.assign(some * stride, 0.0);
    for (std::size_t i = 0; i < some; ++i) {
      const double* row = rows.data() + (first + i) * width + factors_at;
      std::copy_n(row, k, block.data() + i * stride);
    }
    add_gram(some, k, stride, block.data(), block.data(), lower.data());
  }
  std::vector<double> full(k * k);
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t j = 0; j <= i; ++j) full[i * k + j] = full[j * k + i] = lower[i * stride + j];
  }
  return full;
}

// ---- factors from files

namespace {

/// Parses a line. Returns the 1-based column of an error, with the expected text in `wanted`, or 0.
std::size_t parse_factors(std::string_view line, std::size_t k, std::string& id, std::vector<double>& values,
                          std::string& wanted) {
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos || tab == 0) {
    wanted = "an id, a tab and factors joined by |";
    return 1;
  }
  id = line.substr(0, tab);
  std::size_t at = tab + 1;
  std::size_t count = 0;
  for (;; ++count) {
    double v = 0;
    const auto next = std::min(line.find('|', at), line.size());
    if (!parse_number(line.substr(at, next - at), v)) {
      wanted = "a finite number";
      return at + 1;
    }
    values.push_back(v);
    if (next == line.size()) break;
    at = next + 1;
  }
  ++count;
  if (k != 0 && count != k) {
    wanted = std::to_string(k) + " factors as in the first line, not " + std::to_string(count);
    return at + 1;
  }
  return 0;
}

/// Finds the first malformed line, in the order of the files. Throws: data_error for it.
void find_wrong_line(const std::vector<std::string>& files) {
  std::size_t k = 0;
  for (const auto& file : expand(files)) {
    std::size_t number = 0;
    visit_lines(file, 0, 1, [&](std::string&& line) {
      ++number;
      if (line.empty()) return;
      std::string id;
      std::string wanted;
      std::vector<double> values;
      if (const auto column = parse_factors(line, k, id, values, wanted); column != 0) {
        throw data_error(file + ":" + std::to_string(number) + ":" + std::to_string(column) + ": found \"" +
                         line.substr(column - 1, 40) + "\", want " + wanted);
      }
      k = values.size();
    });
  }
  throw data_error(files.front() + ":1:1: found no line, want factors");
}

}  // namespace

factor_lines load_factors(Comm comm, const std::vector<std::string>& files) {
  factor_lines out;
  bool wrong = false;
  std::string wanted;
  visit_lines(comm, files, [&](std::string&& line) {
    if (line.empty() || wrong) return;
    std::string id;
    const std::size_t before = out.values.size();
    wrong = parse_factors(line, out.k, id, out.values, wanted) != 0;
    if (out.k == 0) out.k = out.values.size() - before;
    out.ids.push_back(std::move(id));
  });
  // The workers agree on whether there is an error; then all search for it, in the order of the files.
  std::vector<std::int64_t> most{
      wrong ? 1 : 0, static_cast<std::int64_t>(out.k),
      out.k == 0 ? std::numeric_limits<std::int64_t>::min() : -static_cast<std::int64_t>(out.k)};
  comm.allreduce(most, reduce_op::max);
  if (most[0] != 0 || most[1] == 0 || most[1] != -most[2]) find_wrong_line(files);
  out.k = static_cast<std::size_t>(most[1]);
  return out;
}

void als_role::prepare(std::size_t k) {
  keys = keys_of(ratings.row_ids);
  column_keys = keys_of(ratings.column_ids);
  own.assign(ratings.rows() * row_width(k), 0.0);
  others.resize(column_keys.size() * row_width(k));
}

namespace {

/// The keys of ids: the key of a number does not depend on whether all ids are numbers.
std::vector<std::uint64_t> keys_as(const std::vector<std::string>& ids) { return keys_of(id_list(ids)); }

}  // namespace

als_one_step::als_one_step(paralg& job, const entry_keys& entries, const std::vector<std::string>& rating_input,
                           const std::vector<std::string>& factor_input, bool transpose)
    : job_(job) {
  auto comm = job.get_comm();
  auto options = rating_options(entries);
  options.values = entry_options::value_rule::need;
  options.transpose = transpose;
  side_.ratings = load_some(comm, rating_input, options, "rating, want user,item,rating");
  check_sum_of_squares(scale_of(comm, side_.ratings.value).greatest(), side_.ratings.entries_total,
                       rating_input.front(), "ratings");
  const auto factors = load_factors(comm, factor_input);
  model_.form = als_form::one_step;
  model_.k = factors.k;
  const std::size_t width = row_width(model_.k);
  side_.prepare(model_.k);
  tables_.emplace(job, "als", model_.k);

  const auto keys = keys_as(factors.ids);
  std::vector<double> rows(keys.size() * width);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    rows[i * width + known_at] = 1;
    std::copy_n(factors.values.data() + i * model_.k, model_.k, rows.data() + i * width + factors_at);
  }
  push_rows(tables_->items(), keys, rows);
  job.paracel_sync();
  tables_->items().pull(side_.column_keys, side_.others);
  std::string missing;
  for (std::size_t c = 0; c < side_.column_keys.size() && missing.empty(); ++c) {
    if (side_.others[c * width + known_at] == 0) missing = side_.ratings.column_ids.text(c);
  }
  for (const auto& id : comm.allgather(missing)) {
    if (!id.empty()) {
      throw data_error(factor_input.front() + ": found no factors of \"" + id + "\", which occurs in " +
                       rating_input.front() + "; want factors of every id on the other side of the ratings");
    }
  }
}

als_one_step::errors als_one_step::solve(double lambda, const sparse_rows* validate) {
  auto comm = job_.get_comm();
  model_.lambda = lambda;
  const auto sums = als_half_step(model_, side_.ratings, side_.others, {}, side_.own);
  pair_errors found;
  if (validate != nullptr) {
    push_rows(tables_->users(), side_.keys, side_.own);
    job_.paracel_sync();
    found = predict_pairs(*tables_, *validate, {});
    job_.paracel_sync();  // the next rows are pushed only after all have pulled these
  }
  std::vector<double> all{sums.squares, found.squares_of_known, static_cast<double>(found.pairs),
                          static_cast<double>(found.unknown)};
  comm.allreduce(all);
  errors e;
  e.train_rmse = std::sqrt(all[0] / static_cast<double>(side_.ratings.entries_total));
  e.skipped = static_cast<std::uint64_t>(all[3]);
  e.validated = static_cast<std::uint64_t>(all[2] - all[3]);
  e.validate_rmse = e.validated == 0 ? std::numeric_limits<double>::quiet_NaN() : std::sqrt(all[1] / (all[2] - all[3]));
  return e;
}

// ---- config

void als_settings::keys(key_list& k) {
  k.files("rating_input", rating_input, "ratings: user,item,rating; further fields are ignored")
      .required_unless({"model_input"});
  cache_keys(k, cache);
  k.files("factor_input", factor_input, "given factors id<tab>f|f|...: one half step against them, as in Paracel 0.3");
  std::vector<std::string> held_out;
  k.files("validate_input", held_out, "held-out ratings; another name for test_input");
  output_keys(k, output);
  format_key(k, format, "format of the model");
  k("pattern", transpose, "with factor_input: fmap solves users, smap items", {{"fmap", false}, {"smap", true}});
  k("k", model.k, "factors of a user and of an item").at_least(0).at_most(4096);
  k("rounds", rounds, "alternations, each two half steps").at_least(1).at_most(1000000);
  k("lambda", model.lambda, "weight of the penalty of the factors").at_least(0);
  k("lambda_bias", model.lambda_bias, "weight of the penalty of the biases").at_least(0);
  k("weighted", model.weighted, "each row's penalty is multiplied by its number of ratings");
  k("implicit", implicit, "ratings are implicit, such as counts: fit their presence over all cells");
  k("confidence", model.alpha, "implicit: weight of a cell is 1 + confidence * rating").at_least(0);
  k("cg_steps", model.cg_steps,
    "implicit: improve each row by this many conjugate gradient steps from its previous value; 0: solve it exactly")
      .at_least(0)
      .at_most(1000);
  k("start", start, "standard deviation of the items' factors before the first step").above(0);
  k("tolerance", tolerance, "stop when a round changes the objective by less than this fraction; 0: never").at_least(0);
  k("seed", seed, "seed of the initial factors").at_least(0);
  limits.keys(k);
  k("debug", debug, "print the objective of each round");
  use.keys(k);
  if (held_out.empty()) return;
  if (!use.test_input.empty())
    throw config_error(k.from()->place_of("validate_input") + ": another name for test_input; want only one of them");
  use.test_input = std::move(held_out);
}

void als_settings::check(const config& from) {
  k_place = place_if_given(from, "k");
  implicit_place = from.place_of("implicit");
  if (use.initial.given())
    refuse_keys(from, {"factor_input"}, "not with initial_model: the one step has given factors");
  if (implicit) {
    model.form = als_form::implicit_ratings;
    model.lambda_bias = 0;
    if (model.k == 0) throw config_error(from.place_of("k") + ": found 0, want at least 1 with implicit ratings");
  } else if (model.cg_steps != 0) {
    throw config_error(from.place_of("cg_steps") + ": found " + std::to_string(model.cg_steps) +
                       R"(, want 0 without "implicit": true)");
  }
}

// ---- the job

// No clock: pushes of solved rows take effect immediately, and barriers separate pushes from pulls.
alternating_least_squares::alternating_least_squares(Comm comm, const std::string& server_info,
                                                     const als_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds),
      settings_(settings),
      log_(*this, settings.factor_input.empty() ? settings.rounds : 1,
           settings.factor_input.empty() ? "objective" : "rmse", settings.debug),
      model_(settings.model) {}

void alternating_least_squares::solve() {
  if (!settings_.use.model_input.empty()) {
    const auto saved = open_model(settings_.use.model_input, "als");
    tables_.emplace(*this, "als", saved.k);
    serve_model(*this, settings_.use.model_input, "als", *tables_);
    use_model(*this, log_, *tables_, settings_.use, saved.scale, nullptr, {});
  } else if (!settings_.factor_input.empty()) {
    solve_one_step();
  } else {
    if (settings_.use.initial.given()) read_initial();
    load();
    train();
    write();
  }
  log_.result("output", get_output());
}

void alternating_least_squares::solve_one_step() {
  als_one_step problem(*this, settings_.use.entries, settings_.rating_input, settings_.factor_input,
                       settings_.transpose);
  sparse_rows held_out;
  if (!settings_.use.test_input.empty()) {
    auto options = rating_options(settings_.use.entries);
    options.values = entry_options::value_rule::need;
    options.transpose = settings_.transpose;
    held_out = load_some(get_comm(), settings_.use.test_input, options, "rating, want user,item,rating");
  }
  const auto errors = problem.solve(model_.lambda, settings_.use.test_input.empty() ? nullptr : &held_out);
  model_writer out(*this, "als_one_step", settings_.format);
  out.fields().add("k", static_cast<std::uint64_t>(problem.k())).add("lambda", model_.lambda);
  std::vector<double> w;
  const std::size_t width = row_width(problem.k());
  for (std::size_t i = 0; i < problem.side().ratings.rows(); ++i) {
    const auto row = std::span(problem.side().own).subspan(i * width, width);
    w.insert(w.end(), row.begin() + factors_at, row.end());
  }
  out.add_rows<double>("W", w, {problem.k()}, &problem.side().ratings.row_ids);
  out.finish();
  log_.round(1, errors.train_rmse);
  log_.result("rmse", errors.train_rmse);
  if (settings_.use.test_input.empty()) return;
  log_.result("validate_pairs", errors.validated);
  log_.result("validate_skipped", errors.skipped);
  log_.result("validate_rmse", errors.validate_rmse);
}

void alternating_least_squares::read_initial() {
  const auto& path = settings_.use.initial.path;
  initial_.emplace(path, "als", model_.k, settings_.k_place);
  want_as_in_model(settings_.implicit_place, settings_.implicit,
                   model_reader(path, "als").field<bool>("settings.implicit"));
  model_.k = initial_->head().k;
}

void alternating_least_squares::load() {
  auto comm = get_comm();
  auto options = rating_options(settings_.use.entries);
  options.values = entry_options::value_rule::need;
  // Repeated cells are added up: each cell is one entry.
  if (model_.form == als_form::implicit_ratings) options.duplicates = duplicate_rule::sum;
  options.cache = settings_.cache;
  auto ratings = load_sparse_both_ways(comm, settings_.rating_input, options);
  users_.ratings = std::move(ratings.rows);
  items_.ratings = std::move(ratings.columns);
  require_some(users_.ratings.entries_total, settings_.rating_input, "rating, want user,item,rating");
  scale_ = scale_of(comm, users_.ratings.value);
  check_sum_of_squares(scale_.greatest(), users_.ratings.entries_total, settings_.rating_input.front(), "ratings");
  if (model_.form == als_form::implicit_ratings) {
    if (scale_.least < 0) {
      throw data_error(settings_.rating_input.front() + ": found the rating " + json_number(scale_.least) +
                       ", want ratings >= 0 with implicit");
    }
    scale_ = {};
  }
  if (initial_ && model_.form == als_form::explicit_ratings) scale_ = initial_->with(scale_);
  settings_.limits.apply(scale_);
  model_.mean = scale_.mean;
  users_.prepare(model_.k);
  items_.prepare(model_.k);
  const std::size_t width = row_width(model_.k);
  for (std::size_t i = 0; i < items_.keys.size(); ++i) {
    counter_random random(settings_.seed, start_stream, items_.keys[i]);
    double* row = items_.own.data() + i * width;
    row[known_at] = 1;
    for (std::size_t j = 0; j < model_.k; ++j) row[factors_at + j] = settings_.start * random.normal();
    if (initial_) initial_->take_item(items_.keys[i], std::span(items_.own).subspan(i * width, width));
  }
  for (std::size_t u = 0; initial_ && u < users_.keys.size(); ++u)
    initial_->take_user(users_.keys[u], std::span(users_.own).subspan(u * width, width));
  tables_.emplace(*this, "als", model_.k);
  if (!resumed()) push_rows(tables_->items(), items_.keys, items_.own);
  item_penalty_ = als_penalty(model_, items_.ratings, items_.own);
  comm.allreduce(item_penalty_);
}

/// Solves one side and pushes it; returns the objective. `from` has the rows of the other side.
/// The barrier comes first: a replacement that repeats the half step of a dead process reads the same rows, because the
/// others wait here before they overwrite them.
/// Cost: a barrier, one pull of the other side's row for each local column, one push of each own row, and a reduction
/// of 2 numbers (implicit: one of k^2, and one of 2 + k^2).
double alternating_least_squares::half_step(als_role& side, als_role& other, table<double>& from, table<double>& to) {
  paracel_sync();
  auto comm = get_comm();
  const bool implicit = model_.form == als_form::implicit_ratings;
  std::vector<double> gram;
  if (implicit) {
    gram = factor_gram(model_.k, other.own);
    comm.allreduce(gram);
  }
  from.pull(side.column_keys, side.others);
  const auto sums = als_half_step(model_, side.ratings, side.others, gram, side.own);
  push_rows(to, side.keys, side.own);
  std::vector<double> all{sums.squares, sums.penalty};
  if (implicit) {
    const auto own = factor_gram(model_.k, side.own);
    all.insert(all.end(), own.begin(), own.end());
  }
  comm.allreduce(all);
  (&side == &users_ ? user_penalty_ : item_penalty_) = all[1];
  double objective = all[0] + user_penalty_ + item_penalty_;
  for (std::size_t j = 0; j < gram.size(); ++j) objective += gram[j] * all[2 + j];  // (w.h)^2 over all cells
  return objective;
}

void alternating_least_squares::train() {
  double last = 0;
  double between = 0;
  double objective = 0;
  resumable_loop halves(*this);
  halves.keep("users", users_.own).keep("items", items_.own);
  halves.keep("user_penalty", user_penalty_).keep("item_penalty", item_penalty_);
  halves.keep("last", last).keep("between", between).keep("objective", objective);
  while (halves.next(2 * std::int64_t{settings_.rounds})) {
    if (halves.iteration() % 2 == 0) {
      last = objective;
      between = half_step(users_, items_, tables_->items(), tables_->users());
      continue;
    }
    objective = half_step(items_, users_, tables_->users(), tables_->items());
    const auto round = static_cast<int>(halves.iteration() / 2) + 1;
    check_divergence({"the objective", "want smaller numbers in the ratings, lambda, lambda_bias or start"}, round,
                     objective, 0);
    log_.round(round, objective, {{"after_users", between}});
    if (settings_.tolerance > 0 && round > 1 && std::abs(last - objective) <= settings_.tolerance * std::abs(last))
      halves.stop();
  }
  paracel_sync();
  const auto rounds = static_cast<int>(halves.iteration() / 2);
  const double change = std::abs(last - objective) / std::abs(last);
  if (settings_.tolerance > 0 && rounds > 1 && change > settings_.tolerance)
    warn_not_converged(get_comm(), rounds, "the last change of the objective", change, settings_.tolerance);
  log_.result("rounds", static_cast<std::uint64_t>(rounds));
  log_.result("objective", objective);
  if (model_.form == als_form::implicit_ratings) return;
  const auto errors = predict_pairs(*tables_, users_.ratings, scale_);
  std::vector<double> sums{errors.squares};
  get_comm().allreduce(sums);
  log_.result("rmse", std::sqrt(sums[0] / static_cast<double>(users_.ratings.entries_total)));
}

void alternating_least_squares::write() {
  const auto all_of = [&](const als_role& side, factor_rows others, table<double>& to) {
    push_rows(to, keys_of(others.ids), others.rows);
    factor_rows all{side.ratings.row_ids, side.own};
    all.add(others);
    return all;
  };
  if (initial_) {
    const auto users = all_of(users_, initial_->other_users(get_comm(), users_.keys), tables_->users());
    const auto items = all_of(items_, initial_->other_items(get_comm(), items_.keys), tables_->items());
    write_model(*this, "als", settings_.format, model_.k, scale_, users_.ratings.entries_total,
                {users.rows, &users.ids, items.rows, &items.ids});
    paracel_sync();
  } else {
    write_model(*this, "als", settings_.format, model_.k, scale_, users_.ratings.entries_total,
                {users_.own, &users_.ratings.row_ids, items_.own, &items_.ratings.row_ids});
  }
  // The pushed user rows predate the last solve for the items; the model uses both as they are.
  use_model(*this, log_, *tables_, settings_.use, scale_, &users_.ratings, users_.own);
}

}  // namespace paracel::alg
