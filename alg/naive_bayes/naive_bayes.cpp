// SPDX-License-Identifier: BSD-3-Clause
#include "naive_bayes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include <paracel/com_queue.hpp>

#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/column_shift.hpp"

namespace paracel::alg {

namespace {

// Limit of mean^2 / variance: features above it would make the score of a row of zeros so small that precision is lost.
// They are in nearly all rows of a class, so visiting them in each row costs little.
constexpr double steep = 1e3;
// The fraction of a feature's variance that is added to its variance in each class.
constexpr double own_smoothing = 1e-9;
// A smoothing above this fraction of a feature's variance changes what the feature says.
constexpr double visible_smoothing = 0.01;
constexpr std::int64_t no_row = std::numeric_limits<std::int64_t>::max();

using numbers = std::vector<double>;
using distribution = feature_distribution;
constexpr choices<distribution> distributions = {{"multinomial", distribution::multinomial},
                                                 {"bernoulli", distribution::bernoulli},
                                                 {"gaussian", distribution::gaussian}};

}  // namespace

void naive_bayes_settings::keys(key_list& k) {
  class_settings::keys(k);
  k("distribution", distribution, "distribution of a feature in a class", distributions)
      .required_unless({"model", "initial_model"});
  k("alpha", alpha, "multinomial, bernoulli: added to each count").at_least(1e-10);
  k("binarize", binarize, "bernoulli: a feature is present if its value is greater than this");
  k("var_smoothing", var_smoothing,
    "gaussian: this fraction of the greatest variance of a feature is added to all variances; default: to each 1e-9 "
    "of its own feature's variance in all rows")
      .at_least(0);
  initial.key(k, model);
  k("fit_prior", fit_prior, "estimate the probabilities of classes from the rows; false: all equal");
  k("class_prior", class_prior, "probabilities of the classes, in the order of the classes").at_least(0).at_most(1);
}

void naive_bayes_settings::check(const config& from) {
  prior_place = from.place_of("class_prior");
  distribution_place = place_if_given(from, "distribution");
  binarize_place = place_if_given(from, "binarize");
  if (binarize < 0)
    throw config_error(from.place_of("binarize") +
                       ": found a number below 0, want at least 0: features that a row "
                       "does not have are 0");
  const double sum = std::accumulate(class_prior.begin(), class_prior.end(), 0.0);
  if (!class_prior.empty() && std::abs(sum - 1) > 1e-9)
    throw config_error(prior_place + ": found numbers whose sum is " + json_number(sum) + ", want 1");
}

naive_bayes::naive_bayes(Comm comm, const std::string& server_info, const naive_bayes_settings& settings)
    : class_base(std::move(comm), server_info, settings, 1, consistency::asp()),  // no parameters, no commits
      settings_(settings) {}

void naive_bayes::solve() {
  (void)first_iteration();  // with a model there is no loop: a replacement worker starts from scratch
  if (linear_.model.empty()) {
    train();
    return;
  }
  read_model();
  prepare();
  run_log log(*this, 1);
  use_model(log, nullptr);
}

void naive_bayes::read_model() {
  const model_reader model(linear_.model, "naive_bayes");
  settings_.distribution = model.field("settings.distribution", distributions);
  settings_.binarize = model.field<double>("settings.binarize");
  const bool gaussian = settings_.distribution == distribution::gaussian;
  const std::string first = gaussian ? "naive_bayes_mean" : "naive_bayes_log_probability";
  prior_ = model.read<double>("naive_bayes_log_prior");
  first_ = model.read<double>(first);
  if (settings_.distribution != distribution::multinomial)
    second_ = model.read<double>(gaussian ? "naive_bayes_variance" : "naive_bayes_log_complement");
  const auto shape = model.shape(first);
  if (shape.size() != 2 || shape[0] == 0 || shape[0] > UINT32_MAX)
    throw data_error(linear_.model + ": found no parameters");
  columns_ = shape[0];
  read_classes(model, static_cast<std::uint32_t>(columns_));
  if (shape[1] != classes().size() || prior_.size() != classes().size() ||
      (!second_.empty() && second_.size() != first_.size()))
    throw data_error(linear_.model + ": found parameters of " + std::to_string(shape[1]) + " classes, want " +
                     std::to_string(classes().size()));
}

void naive_bayes::read_initial() {
  const auto& path = linear_.initial.path;
  const model_reader model(path, "naive_bayes");
  const auto kind = model.field("settings.distribution", distributions);
  want_as_in_model(settings_.distribution_place, word_of(distributions, settings_.distribution),
                   word_of(distributions, kind));
  const auto binarize = model.field<double>("settings.binarize");
  if (kind == distribution::bernoulli)
    want_as_in_model(settings_.binarize_place, json_number(settings_.binarize), json_number(binarize));
  settings_.distribution = kind;
  settings_.binarize = binarize;
  const bool gaussian = kind == distribution::gaussian;
  const char* const name = gaussian ? "naive_bayes_mean" : "naive_bayes_count";
  if (!model.has("naive_bayes_class_weight") || !model.has(name))
    throw data_error(path + ": found no sums over rows, which models of earlier versions lack; want a model with them");
  const auto shape = model.shape(name);
  if (shape.size() != 2 || shape[0] == 0 || shape[0] > UINT32_MAX) throw data_error(path + ": found no parameters");
  columns_ = shape[0];
  continue_classes(model, static_cast<std::uint32_t>(columns_));
  auto& e = earlier_;
  e.rows = model.field<std::uint64_t>("rows");
  e.class_rows = model.fields<double>("class_rows");
  e.weight = model.read<double>("naive_bayes_class_weight");
  (gaussian ? e.mean : e.count) = model.read<double>(name);
  if (gaussian) {
    e.square = model.read<double>("naive_bayes_square");
    e.overall = model.read<double>("naive_bayes_overall");
  }
  const auto k = classes().size();
  if (shape[1] != k || e.weight.size() != k || e.class_rows.size() != k ||
      (gaussian && (e.square.size() != columns_ * k || e.overall.size() != columns_ * 2)))
    throw data_error(path + ": found sums of " + std::to_string(shape[1]) + " classes, want " + std::to_string(k));
}

/// Adds the moments of the initial model's rows to those of measure_moments. Features that it does not have were 0.
void naive_bayes::add_earlier(numbers& sums, numbers& square) const {
  const auto& e = earlier_;
  const std::size_t k = classes().size();
  const std::size_t groups = k + 1;
  const std::size_t known = e.overall.size() / 2;
  for (std::size_t at = 0; at < square.size(); ++at) {
    const std::size_t j = at / groups;
    const std::size_t g = at % groups;
    const double before = g < k ? e.weight[g] : static_cast<double>(e.rows);
    const double all = before + sums[g];
    if (!(all > 0)) continue;
    const double earlier_mean = j >= known ? 0 : g < k ? e.mean[j * k + g] : e.overall[2 * j];
    const double earlier_square = j >= known ? 0 : g < k ? e.square[j * k + g] : e.overall[2 * j + 1];
    double& mean = sums[groups + at];
    const double away = mean - earlier_mean;
    mean = earlier_mean + away * (sums[g] / all);
    square[at] += earlier_square + away * away * before * (sums[g] / all);
  }
  for (std::size_t g = 0; g < groups; ++g) sums[g] += g < k ? e.weight[g] : static_cast<double>(e.rows);
}

/// What the next run adds its rows to.
void naive_bayes::write_sums(model_writer& to, const std::vector<std::string>& names) {
  const auto k = classes().size();
  to.add("naive_bayes_class_weight", sums_.weight);
  if (settings_.distribution == distribution::gaussian) {
    add_feature_rows(to, get_comm(), "naive_bayes_square", sums_.square, k, names);
    add_feature_rows(to, get_comm(), "naive_bayes_overall", sums_.overall, 2, names);
  } else {
    add_feature_rows(to, get_comm(), "naive_bayes_count", sums_.count, k, names);
  }
}

void naive_bayes::train() {
  if (linear_.initial.given()) read_initial();
  const auto rows = load_training_classes(1, settings_.distribution == distribution::gaussian);
  columns_ = rows.columns;
  const std::size_t k = classes().size();
  sums_.rows = rows.rows_total + earlier_.rows;
  sums_.class_rows = class_rows();
  if (linear_.initial.given())
    for (std::size_t c = 0; c < k; ++c) sums_.class_rows[c] += earlier_.class_rows[c];
  run_log log(*this, 1, "objective", linear_.debug);
  const bool gaussian = settings_.distribution == distribution::gaussian;
  if (gaussian) measure_moments(rows);
  else count(rows);
  set_priors();
  prepare();

  const auto names = feature_names(rows, false);
  model_writer model(*this, "naive_bayes", linear_.format);
  model.add("naive_bayes_log_prior", prior_);
  add_feature_rows(model, get_comm(), gaussian ? "naive_bayes_mean" : "naive_bayes_log_probability", first_, k, names);
  if (!second_.empty())
    add_feature_rows(model, get_comm(), gaussian ? "naive_bayes_variance" : "naive_bayes_log_complement", second_, k,
                     names);
  write_sums(model, names);
  describe(model, sums_.rows, sums_.class_rows);
  if (linear_.initial.given())
    model.settings()
        .add("distribution", word_of(distributions, settings_.distribution))
        .add("binarize", settings_.binarize);
  log.result("rows", sums_.rows);
  log.result("classes", std::uint64_t{k});
  use_model(log, &model);
}

/// Counts, then the logarithms of the probabilities. A collective.
void naive_bayes::count(const sample_rows& rows) {
  const std::size_t k = classes().size();
  const bool multinomial = settings_.distribution == distribution::multinomial;
  com_queue q(*this);
  q.init_with_partitioned_data("rows", std::cref(rows));
  q.add([&](com_context& c) {
    // A class's weight, then a number a class for each feature.
    auto& sums = c.put_obj("sums", numbers(k + columns_ * k));
    auto& negative = c.put_obj("negative", no_row);
    const auto& own = c.get_obj<const sample_rows>("rows");
    for (std::size_t i = 0; i < own.rows(); ++i) {
      const auto group = static_cast<std::size_t>(own.label[i]);
      const double w = weight_of(i);
      sums[group] += w;
      visit_entries(own, i, [&](std::size_t j, double x) {
        if (multinomial && x < 0) negative = std::min(negative, static_cast<std::int64_t>(own.first_row + i));
        if (multinomial) sums[k + j * k + group] += w * x;
        else if (x > settings_.binarize) sums[k + j * k + group] += w;
      });
    }
  });
  if (multinomial) q.add(all_reduce("negative", reduce_op::min));
  q.add(all_reduce("sums"));
  q.set_max_iter(1).set_watch([](const superstep_report&) {});
  using counts = std::pair<std::int64_t, numbers>;
  q.close_each_with([](com_context& c) {
    return counts(c.get_obj<std::int64_t>("negative"), std::move(c.get_obj<numbers>("sums")));
  });
  auto [negative, sums] = q.exec<counts>();
  if (negative != no_row)
    throw data_error(place_of_row(linear_.training_input, static_cast<std::uint64_t>(negative), samples()) +
                     ": found a number below 0, want counts of at least 0 for multinomial");
  if (linear_.initial.given()) {
    for (std::size_t c = 0; c < k; ++c) sums[c] += earlier_.weight[c];
    for (std::size_t at = 0; at < earlier_.count.size(); ++at) sums[k + at] += earlier_.count[at];
  }
  sums_.weight.assign(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(k));
  sums_.count.assign(sums.begin() + static_cast<std::ptrdiff_t>(k), sums.end());
  first_.resize(columns_ * k);
  if (!multinomial) second_.resize(columns_ * k);
  const double alpha = settings_.alpha;
  for (std::size_t c = 0; c < k; ++c) {
    double all = 0;
    for (std::size_t j = 0; j < columns_; ++j) all += sums[k + j * k + c];
    const double norm = std::log(multinomial ? all + alpha * static_cast<double>(columns_) : sums[c] + 2 * alpha);
    for (std::size_t j = 0; j < columns_; ++j) {
      const double n = sums[k + j * k + c];
      first_[j * k + c] = std::log(n + alpha) - norm;
      if (!multinomial) second_[j * k + c] = std::log(std::max(sums[c] - n, 0.0) + alpha) - norm;
    }
  }
}

/// Means and variances. Each worker uses Welford's updates, which avoid cancellation where a mean is large; two sums
/// over the workers combine them: of the weights and the sums, then of the squares around the global means. A
/// collective.
void naive_bayes::measure_moments(const sample_rows& rows) {
  const std::size_t k = classes().size();
  // The group after the classes has every row, with weight 1, for the greatest variance.
  const std::size_t groups = k + 1;
  com_queue q(*this);
  q.init_with_partitioned_data("rows", std::cref(rows));
  q.add([&](com_context& c) {
    auto& weight = c.put_obj("weight", numbers(groups));             // of rows
    auto& mean = c.put_obj("mean", numbers(columns_ * groups));      // of the entries that are visited
    auto& square = c.put_obj("square", numbers(columns_ * groups));  // sums of squares around that mean
    numbers present(columns_ * groups);                              // the weights of these entries
    const auto& own = c.get_obj<const sample_rows>("rows");
    for (std::size_t i = 0; i < own.rows(); ++i) {
      const std::pair<std::size_t, double> of_row[] = {{static_cast<std::size_t>(own.label[i]), weight_of(i)}, {k, 1}};
      for (const auto& [g, w] : of_row) {
        if (w == 0) continue;
        weight[g] += w;
        visit_entries(own, i, [&, g = g, w = w](std::size_t j, double x) {
          const std::size_t at = j * groups + g;
          present[at] += w;
          const double from_mean = x - mean[at];
          mean[at] += w / present[at] * from_mean;
          square[at] += w * from_mean * (x - mean[at]);
        });
      }
    }
    // Merges in the zeros: groups of values with means m and 0.
    auto& sums = c.put_obj("sums", weight);
    sums.resize(groups + columns_ * groups);
    for (std::size_t at = 0; at < mean.size(); ++at) {
      const double all = weight[at % groups];
      if (all == 0) continue;
      const double part = present[at] / all;
      square[at] += mean[at] * mean[at] * present[at] * std::max(1 - part, 0.0);
      mean[at] *= part;
      sums[groups + at] = mean[at] * all;
    }
  });
  q.add(all_reduce("sums"));
  q.add([&](com_context& c) {
    const auto& weight = c.get_obj<numbers>("weight");
    const auto& mean = c.get_obj<numbers>("mean");
    auto& square = c.get_obj<numbers>("square");
    auto& sums = c.get_obj<numbers>("sums");
    for (std::size_t at = 0; at < mean.size(); ++at) {
      double& of_all = sums[groups + at];
      of_all = sums[at % groups] > 0 ? of_all / sums[at % groups] : 0;
      const double away = mean[at] - of_all;
      square[at] += weight[at % groups] * away * away;
    }
  });
  q.add(all_reduce("square"));
  q.set_max_iter(1).set_watch([](const superstep_report&) {});
  using moments = std::pair<numbers, numbers>;
  q.close_each_with([](com_context& c) {
    return moments(std::move(c.get_obj<numbers>("sums")), std::move(c.get_obj<numbers>("square")));
  });
  auto [sums, square] = q.exec<moments>();
  if (linear_.initial.given()) add_earlier(sums, square);
  sums_.weight.assign(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(k));
  sums_.square.resize(columns_ * k);
  sums_.overall.resize(columns_ * 2);
  std::vector<double> middle(columns_);
  std::vector<double> spread(columns_);
  double greatest = 0;
  for (std::size_t j = 0; j < columns_; ++j) {
    const double variance = square[j * groups + k] / sums[k];
    middle[j] = sums[groups + j * groups + k];
    sums_.overall[2 * j] = middle[j];
    sums_.overall[2 * j + 1] = square[j * groups + k];
    spread[j] = std::sqrt(variance);
    greatest = std::max(greatest, variance);
  }
  require_finite(rows.names, spread);
  bool informative = false;
  for (std::size_t j = 0; j < columns_; ++j) informative = informative || !is_constant(middle[j], spread[j]);
  if (!informative)
    throw data_error(linear_.training_input.front() + ": found only features without variance, want one that varies");
  warn_of_rounding(get_comm(), rows.names, middle, spread);
  const auto& given = settings_.var_smoothing;
  if (given) warn_of_smoothing(rows.names, middle, spread, *given * greatest);
  first_.resize(columns_ * k);
  second_.resize(columns_ * k);
  for (std::size_t j = 0; j < columns_; ++j) {
    const double variance = spread[j] * spread[j];
    const double smoothing = given ? *given * greatest : own_smoothing * variance;
    for (std::size_t c = 0; c < k; ++c) {
      const std::size_t at = j * k + c;
      first_[at] = sums[groups + j * groups + c];
      sums_.square[at] = square[j * groups + c];
      second_[at] = square[j * groups + c] / sums_.weight[c] + smoothing;
      // A constant feature says nothing about the class, whatever its variance.
      if (is_constant(middle[j], spread[j])) second_[at] = given && smoothing > 0 ? smoothing : 1;
      else if (sums_.weight[c] > 0 && !(second_[at] > 0))
        throw data_error(linear_.training_input.front() + ": found a feature without variance in class " +
                         classes()[c] + ", want var_smoothing above 0");
    }
  }
}

/// Rank 0 warns of the feature that a smoothing common to all suits least.
void naive_bayes::warn_of_smoothing(const std::vector<std::string>& names, std::span<const double> mean,
                                    std::span<const double> spread, double smoothing) const {
  std::size_t worst = columns_;
  double most = visible_smoothing;
  for (std::size_t j = 0; j < columns_; ++j) {
    const double variance = spread[j] * spread[j];
    if (is_constant(mean[j], spread[j]) || !(smoothing > most * variance)) continue;
    most = smoothing / variance;
    worst = j;
  }
  if (worst < columns_)
    warn(get_comm(), "var_smoothing adds " + json_number(most) + " times its variance to that of column " +
                         column_name(names, worst) + "; lower it, or leave it out");
}

void naive_bayes::set_priors() {
  const std::size_t k = classes().size();
  prior_.resize(k);
  double all = 0;
  for (std::size_t c = 0; c < k; ++c) {
    if (sums_.weight[c] == 0)
      throw data_error(linear_.training_input.front() + ": found class " + classes()[c] +
                       " with rows of weight 0 only, want a weight above 0");
    all += sums_.weight[c];
  }
  if (!settings_.class_prior.empty() && settings_.class_prior.size() != k)
    throw config_error(settings_.prior_place + ": found " + std::to_string(settings_.class_prior.size()) +
                       " numbers, want one for each of " + std::to_string(k) + " classes");
  for (std::size_t c = 0; c < k; ++c) {
    if (!settings_.class_prior.empty()) prior_[c] = std::log(settings_.class_prior[c]);
    else if (settings_.fit_prior) prior_[c] = std::log(sums_.weight[c]) - std::log(all);
    else prior_[c] = -std::log(static_cast<double>(k));
  }
}

/// Computes the part of the scores that is the same for all rows.
void naive_bayes::prepare() {
  const std::size_t k = classes().size();
  of_all_ = prior_;
  steep_.clear();
  if (settings_.distribution == distribution::bernoulli) {
    for (std::size_t at = 0; at < second_.size(); ++at) of_all_[at % k] += second_[at];
  }
  if (settings_.distribution == distribution::gaussian) {
    for (std::size_t at = 0; at < second_.size(); ++at)
      of_all_[at % k] -= 0.5 * std::log(2 * std::numbers::pi * second_[at]);
  }
  of_zeros_ = of_all_;
  if (settings_.distribution != distribution::gaussian) return;
  is_steep_.assign(columns_, 0);
  for (std::size_t j = 0; j < columns_; ++j) {
    double most = 0;
    const auto zero = [&](std::size_t c) { return first_[j * k + c] * first_[j * k + c] / second_[j * k + c]; };
    for (std::size_t c = 0; c < k; ++c) most = std::max(most, zero(c));
    if (most > steep) {
      is_steep_[j] = 1;
      steep_.push_back(j);
      continue;
    }
    for (std::size_t c = 0; c < k; ++c) of_zeros_[c] -= 0.5 * zero(c);
  }
}

void naive_bayes::log_probabilities(const sample_rows& rows, std::size_t i, std::span<double> to) const {
  const std::size_t k = to.size();
  const auto add_normal = [&](std::size_t j, double x) {
    for (std::size_t c = 0; c < k; ++c) {
      const double away = x - first_[j * k + c];
      to[c] -= 0.5 * away * away / second_[j * k + c];
    }
  };
  const auto kind = settings_.distribution;
  if (kind == distribution::gaussian && rows.dense) {
    std::copy(of_all_.begin(), of_all_.end(), to.begin());
    const auto x = rows.dense_row(i);
    for (std::size_t j = 0; j < x.size(); ++j) add_normal(j, x[j]);
    to_log_probabilities(to);
    return;
  }
  std::copy(of_zeros_.begin(), of_zeros_.end(), to.begin());
  std::vector<double> steep_values(steep_.size());
  std::size_t next = 0;
  visit_entries(rows, i, [&](std::size_t j, double x) {
    if (kind == distribution::gaussian && is_steep_[j] != 0) {
      while (steep_[next] < j) ++next;
      steep_values[next] = x;
      return;
    }
    const double* first = first_.data() + j * k;
    const double* second = second_.data() + j * k;
    for (std::size_t c = 0; c < k; ++c) {
      if (kind == distribution::multinomial) to[c] += x * first[c];
      else if (kind == distribution::gaussian) to[c] -= 0.5 * x * (x - 2 * first[c]) / second[c];
      else if (x > settings_.binarize) to[c] += first[c] - second[c];
    }
  });
  for (std::size_t s = 0; s < steep_.size(); ++s) add_normal(steep_[s], steep_values[s]);
  to_log_probabilities(to);
}

void naive_bayes::use_model(run_log& log, model_writer* model) {
  use([&](const sample_rows& rows, std::size_t i, std::span<double> scores) { log_probabilities(rows, i, scores); },
      true, false, log, model);
}

}  // namespace paracel::alg
