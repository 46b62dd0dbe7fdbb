// SPDX-License-Identifier: BSD-3-Clause
#include "kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <paracel/json_parser.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/row_weights.hpp"
#include "kmeans_input.hpp"

namespace paracel::alg {

namespace {

// The square of a number 1e-16 times as large is still above 0, with all its digits.
constexpr double least_size = 1e-130;

constexpr choices<point_metric> metrics = {
    {"euclidean", point_metric::euclidean}, {"cosine", point_metric::cosine}, {"haversine", point_metric::haversine}};

}  // namespace

void kmeans_settings::keys(key_list& k) {
  k.files("input", input, "points, CSV or libsvm").required();
  output_keys(k, output);
  k("type", type, "fvec: name<tab>x,x,...; rows: CSV, libsvm or npy; auto: detected from the first line",
    {{"auto", point_format::automatic}, {"fvec", point_format::fvec}, {"rows", point_format::rows}});
  k("kclusters", kclusters, "number of centres; not with model")
      .at_least(1)
      .at_most(1000000)
      .required_unless({"model", "initial_model"});
  k.plugin("update_file", update.file, "plug-in that combines the workers' parts of the centres in the servers")
      .not_resumable();
  update.functions_key(k, "update_file", "update_functions",
                       "functions of update_file: for the centres, and for the names of each cluster's points",
                       {"local_update_kmeans_clusters", "local_update_kmeans_groups"});
  k("rounds", rounds, "maximum number of rounds; a round is a pass over the points").at_least(1).at_most(1000000000);
  k("n_init", n_init, "runs from different seeds; the best is kept").at_least(1).at_most(10000);
  k("batch_size", batch_size, "points in a step of mini-batch k-means; 0: Lloyd's algorithm").at_least(0);
  k("tolerance", tolerance, "stop when a round lowers the inertia by less than this fraction; 0: when nothing changes")
      .at_least(0);
  k("metric", metric,
    "cosine: points and centres are scaled to length 1; haversine: points are latitude,longitude in degrees", metrics);
  model_key(k, model, "folder or manifest of a model: only assign the points to its centres");
  initial.key(k, model);
  table.samples.label = sample_options::label_rule::none;
  table.keys(k, {.labels = false});
  format_key(k, format, "format of the results: Paracel's text, or npy");
  k("seed", seed, "seed of the initial centres and of the batches").at_least(0);
  k("debug", debug, "print the inertia of each round");
}

void kmeans_settings::check(const config& from) {
  kclusters_place = from.place_of("kclusters");
  metric_place = place_if_given(from, "metric");
  weight_place = from.place_of("weight");
  if (!model.empty()) refuse_keys(from, {"update_file"}, "not with a model, which has its own centres");
  if (format == result_format::npy && from.get<std::vector<std::string>>("update_functions").size() > 1)
    throw config_error(from.place_of("update_functions") + ": found two, want one with npy, which has no groups");
  if (rounds > std::numeric_limits<int>::max() / n_init) {
    throw config_error(from.place_of("rounds") + ": found " + std::to_string(rounds) + " for each of " +
                       std::to_string(n_init) + " runs, want at most 2^31 - 1 in all");
  }
  if (type != point_format::rows && std::find(input.begin(), input.end(), "-") != input.end()) {
    throw config_error(from.place_of("type") + ": found " + from.get<std::string>("type") +
                       ", want rows with standard input, which is read once");
  }
  if (!model.empty() && from.given("kclusters"))
    throw config_error(kclusters_place + ": not with a model, which has its own centres");
}

kmeans::kmeans(Comm comm, const std::string& server_info, const kmeans_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds), settings_(settings) {
  if (settings_.update.given()) servers_.emplace(*this, settings_.update.file);
}

void kmeans::solve() {
  if (!settings_.model.empty()) {
    settings_.metric_place.clear();  // the model's counts
    read_model(settings_.model);
    load();
    run_log log(*this, 1, "inertia", settings_.debug);
    kmeans_solver driver(*this, points_, total_, options(log));
    dump(driver.assigned(std::exchange(centers_, {}), 0, true), log);
    return;
  }
  if (settings_.initial.given()) read_model(settings_.initial.path);
  load();
  // The centres of a model may be more than the points of a batch.
  if (settings_.kclusters > counted_ && centers_.empty()) {
    throw config_error(settings_.kclusters_place + ": found number " + std::to_string(settings_.kclusters) +
                       ", want at most the number of points" + (counted_ < total_ ? " with a weight above 0, " : ", ") +
                       std::to_string(counted_));
  }
  run_log log(*this, settings_.rounds, "inertia", settings_.debug);
  kmeans_solver driver(*this, points_, total_, options(log));
  dump(driver.best(), log);
}

void kmeans::read_model(const std::string& path) {
  const model_reader model(path, "kmeans");
  const auto shape = model.shape("centers");
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || shape[1] > ~std::uint32_t{0})
    throw data_error(path + ": found centers of the wrong shape, want one row of features per cluster");
  if (settings_.kclusters != 0 && settings_.kclusters != shape[0])
    want_as_in_model(settings_.kclusters_place, std::to_string(settings_.kclusters), std::to_string(shape[0]));
  settings_.kclusters = shape[0];
  const auto metric = model.field("settings.metric", metrics);
  want_as_in_model(settings_.metric_place, word_of(metrics, settings_.metric), word_of(metrics, metric));
  settings_.metric = metric;
  read_fields(model, static_cast<std::uint32_t>(shape[1]), settings_.table);
  centers_ = model.read<double>("centers");
  if (settings_.haversine()) centers_ = on_sphere(centers_);
  const bool batches = model.has("seen");
  seen_ = model.read<double>(batches ? "seen" : "counts");
  if (batches) steps_ = model.field<std::uint64_t>("steps");
  if (seen_.size() != shape[0])
    throw data_error(path + ": found counts of " + std::to_string(seen_.size()) + " centers, want " +
                     std::to_string(shape[0]));
}

/// Coordinates of 0 for the features that only the new points have.
void kmeans::widen_centers() {
  const auto k = settings_.kclusters;
  const auto before = centers_.size() / k;
  const auto d = points_.dimension();
  if (before == d) return;
  std::vector<double> wide(k * d);
  for (std::size_t c = 0; c < k; ++c)
    std::copy_n(centers_.begin() + static_cast<std::ptrdiff_t>(c * before), before,
                wide.begin() + static_cast<std::ptrdiff_t>(c * d));
  centers_ = std::move(wide);
}

kmeans_options kmeans::options(run_log& log) {
  kmeans_options o;
  o.clusters = settings_.kclusters;
  o.rounds = settings_.rounds;
  o.n_init = settings_.n_init;
  o.batch_size = settings_.batch_size;
  o.tolerance = settings_.tolerance;
  o.cosine = settings_.unit_length();
  o.weighted = settings_.weighted();
  o.seed = settings_.seed;
  if (settings_.initial.given()) {
    widen_centers();
    o.start = centers_;
    o.seen = seen_;
    for (double& w : o.seen) w /= weight_unit_;
    o.steps = steps_;
  }
  o.progress = [&log, unit = weight_unit_](int run, int round, double inertia, std::optional<double> changed) {
    inertia *= unit;
    if (changed) log.round(round, inertia, {{"changed", *changed}, {"run", static_cast<double>(run)}});
    else log.round(round, inertia, {{"run", static_cast<double>(run)}});
  };
  if (!servers_) return o;
  // One list per centre, as Paracel's function expects them.
  o.combine = [this, d = points_.dimension()](std::vector<double> rows) {
    std::vector<std::vector<double>> centres;
    for (auto at = rows.begin(); at != rows.end(); at += static_cast<std::ptrdiff_t>(d))
      centres.emplace_back(at, at + static_cast<std::ptrdiff_t>(d));
    const auto next = servers_->combine("clusters_", centres, settings_.update.functions[0]);
    rows.clear();
    for (const auto& c : next) rows.insert(rows.end(), c.begin(), c.end());
    const bool same =
        next.size() == centres.size() && std::ranges::all_of(next, [d](const auto& c) { return c.size() == d; });
    if (!same) throw plugin_error(settings_.update.functions[0] + ": returned centres of a different shape");
    return rows;
  };
  return o;
}

void kmeans::load() {
  named_ = settings_.type == point_format::fvec ||
           (settings_.type == point_format::automatic && is_fvec(get_comm(), settings_.input));
  auto& how = settings_.table.samples;
  auto rows = named_                    ? load_fvec(get_comm(), settings_.input, how.columns, names_)
              : settings_.model.empty() ? load_training_rows(get_comm(), settings_.input, how)
                                        : load_samples(get_comm(), settings_.input, how);
  total_ = rows.rows_total;
  if (rows.columns == 0) throw data_error(settings_.input.front() + ": found points without any feature");
  if (named_ && !how.weight.empty())
    throw config_error(settings_.weight_place + ": not with points with names, which have no fields; want row_weights");
  if (!settings_.table.row_weights.empty())
    rows.weight = load_row_weights(get_comm(), settings_.table.row_weights, rows);
  // Points to be assigned to a model may lack its last features.
  if (!settings_.model.empty()) {
    rows.columns = how.columns;
    how.names = rows.names;
    how.fields = rows.fields;
  }
  if (settings_.haversine()) to_sphere(rows, settings_.input, how);
  scale_weights(rows);
  double most = 0;
  for (const double v : rows.value) most = std::max(most, std::abs(v));
  auto comm = get_comm();
  comm.allreduce(most, reduce_op::max);
  if (settings_.model.empty() && !settings_.unit_length() && most > 0 && most < least_size)
    throw data_error(settings_.input.front() + ": found only numbers below " + json_number(least_size) +
                     ", whose squares underflow; want larger ones");
  points_ = kmeans_points(std::move(rows), settings_.unit_length());
}

/// Makes the greatest weight of all workers one in [1, 2), so that no product with a square overflows or underflows.
void kmeans::scale_weights(sample_rows& rows) {
  auto comm = get_comm();
  counted_ = total_;
  if (!settings_.weighted()) return;
  double greatest = 0;
  for (const double w : rows.weight) greatest = std::max(greatest, w);
  comm.allreduce(greatest, reduce_op::max);
  const int exponent = std::ilogb(greatest);
  for (double& w : rows.weight) w = std::scalbn(w, -exponent);
  weight_unit_ = std::scalbn(1.0, exponent);
  counted_ = static_cast<std::uint64_t>(std::ranges::count_if(rows.weight, [](double w) { return w > 0; }));
  comm.allreduce(counted_);
}

/// Paracel's kmeans_<rank>: one line for each cluster with its points. Each worker writes its own points; with a
/// plug-in, worker 0 writes what its function combined from all workers.
void kmeans::dump_groups(const std::vector<std::uint64_t>& labels) {
  dict_type<int, std::vector<std::string>> groups;
  for (std::size_t i = 0; i < labels.size(); ++i)
    groups[static_cast<int>(labels[i])].push_back(named_ ? names_.text(i) : std::to_string(points_.first_row() + i));
  if (servers_) {
    groups = servers_->combine("kmeans_result_", groups, settings_.update.functions[1]);
    if (get_worker_id() != 0) groups.clear();
  }
  paracel_dump_dict(groups, "kmeans_");
}

void kmeans::dump(kmeans_outcome best, run_log& log) {
  best.inertia *= weight_unit_;
  for (double& count : best.counts) count *= weight_unit_;
  check_divergence({"the inertia", "want smaller numbers in the points: their squares overflow"}, best.rounds,
                   best.inertia, 0);
  const auto centers = settings_.haversine() ? on_globe(best.centres) : best.centres;
  const std::size_t d = settings_.haversine() ? 2 : points_.dimension();
  std::vector<std::uint64_t> labels(best.assignment.begin(), best.assignment.end());
  if (settings_.format == result_format::text) dump_groups(labels);
  model_writer model(*this, "kmeans", settings_.format);
  model.add("centers", std::span<const double>(centers), {settings_.kclusters, d});
  model.add("counts", best.counts);
  if (settings_.batch_size > 0 && settings_.model.empty()) {
    for (double& w : best.seen) w *= weight_unit_;
    model.add("seen", best.seen);
    model.fields().add("steps", best.steps);
  }
  model.add_rows("labels", std::span<const std::uint64_t>(labels), {}, named_ ? &names_ : nullptr);
  model.fields()
      .add("objective", best.inertia)
      .add("rows", total_)
      .add("rounds", best.rounds)
      .add("converged", best.converged);
  add_fields(model, settings_.table.samples);
  model.settings()
      .add("kclusters", std::uint64_t{settings_.kclusters})
      .add("metric", word_of(metrics, settings_.metric));
  model.finish();
  log.result("inertia", best.inertia);
  log.result("rounds", static_cast<std::uint64_t>(best.rounds));
  log.result("converged", best.converged ? "yes" : "no");
  // Mini-batches without a tolerance have no other end.
  if (!best.converged && (settings_.batch_size == 0 || settings_.tolerance > 0))
    warn(get_comm(), "not converged after " + std::to_string(best.rounds) + " rounds; raise rounds or tolerance");
  log.result("output", get_output());
}

}  // namespace paracel::alg
