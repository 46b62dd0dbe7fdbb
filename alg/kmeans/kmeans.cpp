// SPDX-License-Identifier: BSD-3-Clause
#include "kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/random.hpp>

#include "alg/common/npy.hpp"
#include "alg/common/serve.hpp"
#include "kmeans_input.hpp"

namespace paracel::alg {

namespace {

// What random numbers are for.
constexpr std::uint64_t first_stream = 1;
constexpr std::uint64_t batch_stream = 2;
constexpr std::uint64_t seeding_stream = 16;  // and one more for each round of k-means||

// k-means||: five rounds of twice as many points as there are centres. Source: Bahmani et al., section 5.
constexpr int seeding_rounds = 5;
constexpr double oversampling = 2;

}  // namespace

config_schema kmeans_schema() {
  config_schema s("kmeans", "k-means clustering");
  s.key("input", key_type::files, "points, CSV or libsvm").required();
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.key("type", key_type::string, "fvec: name<tab>x,x,...; rows: CSV, libsvm or npy; auto: as the first line is")
      .fallback("auto").one_of({"auto", "fvec", "rows"});
  s.key("kclusters", key_type::integer, "number of centres; not with model").at_least(1).at_most(1000000);
  s.key("update_file", key_type::string, "Paracel's; the sums of the centres need no update function");
  s.key("update_functions", key_type::strings, "Paracel's; not needed either");
  s.key("rounds", key_type::integer, "rounds at most; a round is a pass over the points").fallback(300)
      .at_least(1).at_most(1000000000);
  s.key("n_init", key_type::integer, "runs from different seeds; the best is kept").fallback(1).at_least(1).at_most(10000);
  s.key("batch_size", key_type::integer, "points a step of mini-batch k-means; 0: Lloyd's rounds").fallback(0).at_least(0);
  s.key("tolerance", key_type::number, "stop when a round lowers the inertia by less than this part; 0: when nothing changes")
      .fallback(0.0).at_least(0);
  s.key("metric", key_type::string, "cosine: points and centres are scaled to length 1").fallback("euclidean")
      .one_of({"euclidean", "cosine"});
  s.key("model", key_type::files, "folder or manifest of a model: only assign the points to its centres");
  s.key("features", key_type::strings, "CSV with a header: names of the features; default: all");
  s.key("separator", key_type::string, "CSV: what is between fields; default: comma, semicolon or tab, as the file has");
  s.key("format", key_type::string, "of the results: Paracel's text, or npy").fallback("text").one_of({"text", "npy"});
  s.key("seed", key_type::integer, "of the first centres and the batches").fallback(0).at_least(0);
  s.key("debug", key_type::boolean, "print the inertia of each round").fallback(false);
  return s;
}

kmeans_settings::kmeans_settings(const config& from)
    : input(from.get<std::vector<std::string>>("input")),
      output(from.get<std::string>("output")),
      model(model_of(from)),
      format(from.get<std::string>("format")),
      type(from.get<std::string>("type")),
      kclusters_place(from.place_of("kclusters")),
      kclusters(from.get<std::size_t>("kclusters")),
      rounds(from.get<int>("rounds")),
      n_init(from.get<int>("n_init")),
      batch_size(from.get<std::size_t>("batch_size")),
      tolerance(from.get<double>("tolerance")),
      cosine(from.get<std::string>("metric") == "cosine"),
      debug(from.get<bool>("debug")),
      seed(from.get<std::uint64_t>("seed")) {
  samples.label = sample_options::label_rule::none;
  samples.features = from.get<std::vector<std::string>>("features");
  const auto separator = from.get<std::string>("separator");
  if (separator.size() > 1)
    throw config_error(from.place_of("separator") + ": found \"" + separator + "\", want one character");
  if (!separator.empty()) samples.separator = separator[0];
  if (model.empty() && !from.given("kclusters")) throw config_error(kclusters_place + " is missing");
  if (!model.empty() && from.given("kclusters"))
    throw config_error(kclusters_place + ": not with a model, which has its centres");
}

kmeans::kmeans(Comm comm, const std::string& server_info, const kmeans_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds), settings_(settings) {}

void kmeans::solve() {
  if (!settings_.model.empty()) {
    const model_reader model(settings_.model, "kmeans");
    const auto shape = model.shape("centers");
    if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || shape[1] > ~std::uint32_t{0})
      throw data_error(settings_.model + ": found centers of another shape than clusters and features");
    settings_.kclusters = shape[0];
    settings_.cosine = model.field<std::string>("settings.metric") == "cosine";
    settings_.samples.columns = static_cast<std::uint32_t>(shape[1]);
    load();
    run_log log(*this, 1, "inertia", settings_.debug);
    dump(finish(model.read<double>("centers"), 0, true), log);
    return;
  }
  load();
  if (settings_.kclusters > total_) {
    throw config_error(settings_.kclusters_place + ": found number " + std::to_string(settings_.kclusters) +
                       ", want at most the number of points, " + std::to_string(total_));
  }
  run_log log(*this, settings_.rounds * settings_.n_init, "inertia", settings_.debug);
  outcome best;
  for (int attempt = 0; attempt < settings_.n_init; ++attempt) {
    seed_ = mix64(settings_.seed + static_cast<std::uint64_t>(attempt) * 0x9e3779b97f4a7c15U);
    auto centres = seeds(seed_);
    auto found = settings_.batch_size == 0 ? lloyd(std::move(centres), attempt, log)
                                           : mini_batches(std::move(centres), attempt, log);
    if (attempt == 0 || found.inertia < best.inertia) best = std::move(found);
  }
  dump(best, log);
}

void kmeans::load() {
  named_ = settings_.type == "fvec" || (settings_.type == "auto" && is_fvec(get_comm(), settings_.input));
  auto rows = named_ ? load_fvec(get_comm(), settings_.input, settings_.samples.columns, names_)
                     : load_samples(get_comm(), settings_.input, settings_.samples);
  total_ = rows.rows_total;
  if (rows.columns == 0) throw data_error(settings_.input.front() + ": found points without any feature");
  // Points to assign to a model may lack its last features.
  if (settings_.samples.columns != 0) rows.columns = settings_.samples.columns;
  points_ = kmeans_points(std::move(rows), settings_.cosine);
}

/// These rows of this worker and those of the others, in the order of the rows of all workers. A collective.
std::vector<double> kmeans::gather_points(const std::vector<std::size_t>& mine) {
  std::vector<double> rows;
  for (const auto i : mine) {
    const auto x = points_.point(i);
    rows.insert(rows.end(), x.begin(), x.end());
  }
  std::vector<double> all;
  for (const auto& part : get_comm().allgather(rows)) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// k-means||: a first point, five rounds in which each point is taken with a probability that grows with its distance, and
/// a reduction of what was taken to k centres.
std::vector<double> kmeans::seeds(std::uint64_t seed) {
  const std::size_t n = points_.rows();
  const std::size_t d = points_.dimension();
  const auto wanted = oversampling * static_cast<double>(settings_.kclusters);
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<double> square(n, std::numeric_limits<double>::infinity());
  std::vector<double> new_square(n);
  std::vector<double> ignored(n);
  std::vector<std::uint32_t> nearest(n);
  std::vector<std::uint32_t> new_nearest(n);

  std::vector<std::size_t> taken;
  const std::uint64_t first = counter_random(seed, first_stream).below(total_);
  if (first >= points_.first_row() && first - points_.first_row() < n) taken.push_back(first - points_.first_row());
  std::vector<double> candidates;
  for (int round = 0;; ++round) {
    const auto fresh = gather_points(taken);
    const auto before = static_cast<std::uint32_t>(candidates.size() / d);
    double cost = 0;
    if (!fresh.empty()) {
      points_.nearest(kmeans_centres(fresh, d), all, new_nearest, new_square, ignored);
      for (std::size_t i = 0; i < n; ++i) {
        if (new_square[i] >= square[i]) continue;
        square[i] = new_square[i];
        nearest[i] = before + new_nearest[i];
      }
    }
    for (std::size_t i = 0; i < n; ++i) cost += square[i];
    candidates.insert(candidates.end(), fresh.begin(), fresh.end());
    // One round more where the usual five have not found enough.
    const bool enough = candidates.size() / d >= settings_.kclusters;
    if ((round >= seeding_rounds && enough) || round > 2 * seeding_rounds) break;
    cost = sum_over_workers(get_comm(), cost);
    if (!(cost > 0)) break;  // every point is a candidate
    taken.clear();
    for (std::size_t i = 0; i < n; ++i) {
      counter_random random(seed, seeding_stream + static_cast<std::uint64_t>(round), points_.first_row() + i);
      if (random.uniform() * cost < wanted * square[i]) taken.push_back(i);
    }
  }

  const std::size_t count = candidates.size() / d;
  if (count <= settings_.kclusters) {
    // Too few different points: centres that are there twice stay empty, or take the farthest point.
    std::vector<double> rows = candidates;
    while (rows.size() < settings_.kclusters * d) rows.insert(rows.end(), candidates.begin(), candidates.begin() +
                                                              static_cast<std::ptrdiff_t>(d));
    return rows;
  }
  std::vector<double> weight(count);
  for (std::size_t i = 0; i < n; ++i) weight[nearest[i]] += 1;
  sum_over_workers(get_comm(), weight);
  // On one worker: processors of other kinds may differ in the last digits.
  std::vector<double> rows;
  if (get_worker_id() == 0) rows = kmeans_reduce(candidates, d, weight, settings_.kclusters, seed);
  get_comm().bcast(rows);
  if (settings_.cosine) {
    for (std::size_t c = 0; c < settings_.kclusters; ++c) {
      double norm = 0;
      for (std::size_t j = 0; j < d; ++j) norm += rows[c * d + j] * rows[c * d + j];
      if (norm == 0) continue;
      for (std::size_t j = 0; j < d; ++j) rows[c * d + j] /= std::sqrt(norm);
    }
  }
  return rows;
}

/// One round: every worker assigns its points, and the sums of all are added up. A collective.
void kmeans::assign(const kmeans_centres& centres, const std::vector<double>& moved) {
  points_.assign(centres, moved, sums_);
  sum_over_workers(get_comm(), sums_.values);
}

/// Every centre without points takes one: the farthest of all from its own centre, the next one for the next centre.
/// The others lose it. A collective; nothing travels when no centre is empty.
void kmeans::fill_empty() {
  std::vector<std::uint32_t> empty;
  for (std::size_t c = 0; c < sums_.size(); ++c) {
    if (sums_.count(c) == 0) empty.push_back(static_cast<std::uint32_t>(c));
  }
  if (empty.empty()) return;
  const auto far = points_.farthest(empty.size());
  std::vector<std::vector<double>> mine;
  for (const auto& f : far) {
    auto x = points_.point(f.row - points_.first_row());
    x.push_back(f.distance);
    x.push_back(static_cast<double>(f.row));
    x.push_back(f.centre);
    mine.push_back(std::move(x));
  }
  std::vector<std::vector<double>> all;
  for (auto& part : get_comm().allgather(mine)) {
    for (auto& x : part) all.push_back(std::move(x));
  }
  const std::size_t d = points_.dimension();
  // Of one distance the first row, because the parts came in the order of the rows.
  std::stable_sort(all.begin(), all.end(), [d](const auto& a, const auto& b) { return a[d] > b[d]; });
  std::size_t at = 0;
  for (const auto& x : all) {
    const auto from = static_cast<std::size_t>(x[d + 2]);
    if (at == empty.size() || x[d] <= 0) break;
    if (sums_.count(from) <= 1) continue;
    const auto to = empty[at++];
    for (std::size_t j = 0; j < d; ++j) {
      sums_.sum(from)[j] -= x[j];
      sums_.sum(to)[j] += x[j];
    }
    sums_.count(from) -= 1;
    sums_.count(to) += 1;
    sums_.changed() += 1;
    const auto row = static_cast<std::uint64_t>(x[d + 1]);
    if (row >= points_.first_row() && row - points_.first_row() < points_.rows())
      points_.reassign(row - points_.first_row(), to);
  }
}

kmeans::outcome kmeans::lloyd(std::vector<double> rows, int attempt, run_log& log) {
  const std::size_t d = points_.dimension();
  sums_ = kmeans_sums(settings_.kclusters, d);
  points_.restart();
  kmeans_centres centres(std::move(rows), d);
  std::vector<double> moved(centres.size());
  double last = std::numeric_limits<double>::infinity();
  for (int round = 1; round <= settings_.rounds; ++round) {
    assign(centres, moved);
    fill_empty();
    const double inertia = sums_.inertia();
    log.round(attempt * settings_.rounds + round, inertia,
              {{"changed", sums_.changed()}, {"run", static_cast<double>(attempt)}});
    if (sums_.changed() == 0) return finish(centres.rows(), round, true);
    const bool small = settings_.tolerance > 0 && last - inertia <= settings_.tolerance * inertia;
    last = inertia;
    kmeans_centres next(kmeans_means(centres, sums_, settings_.cosine), d);
    for (std::size_t c = 0; c < moved.size(); ++c) {
      double square = 0;
      for (std::size_t j = 0; j < d; ++j) {
        const double e = next.row(c)[j] - centres.row(c)[j];
        square += e * e;
      }
      moved[c] = std::sqrt(square) * (1 + 1e-10);
    }
    centres = std::move(next);
    if (small) return finish(centres.rows(), round, true);
  }
  return finish(centres.rows(), settings_.rounds, false);
}

/// A step moves each centre to the mean of all points that it was given so far, those of the step included.
kmeans::outcome kmeans::mini_batches(std::vector<double> rows, int attempt, run_log& log) {
  const std::size_t d = points_.dimension();
  const std::size_t k = settings_.kclusters;
  sums_ = kmeans_sums(k, d);
  std::vector<double> seen(k);
  const std::uint64_t size = std::min<std::uint64_t>(settings_.batch_size, total_);
  const std::uint64_t steps = (total_ + size - 1) / size;
  double last = std::numeric_limits<double>::infinity();
  std::uint64_t step = 0;
  std::vector<std::size_t> mine;
  std::vector<std::uint32_t> best;
  std::vector<double> square;
  std::vector<double> ignored;
  int round = 1;
  bool converged = false;
  for (; round <= settings_.rounds && !converged; ++round) {
    double inertia = 0;
    for (std::uint64_t s = 0; s < steps; ++s, ++step) {
      // Every worker draws the whole batch and takes its own rows of it.
      counter_random random(seed_, batch_stream, step);
      mine.clear();
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t row = random.below(total_);
        if (row >= points_.first_row() && row - points_.first_row() < points_.rows())
          mine.push_back(row - points_.first_row());
      }
      std::sort(mine.begin(), mine.end());
      best.resize(mine.size());
      square.resize(mine.size());
      ignored.resize(mine.size());
      const kmeans_centres centres(rows, d);
      if (!mine.empty()) points_.nearest(centres, mine, best, square, ignored);
      std::fill(sums_.values.begin(), sums_.values.end(), 0.0);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        points_.add(mine[i], 1, sums_.sum(best[i]));
        sums_.count(best[i]) += 1;
        sums_.inertia() += square[i];
      }
      sum_over_workers(get_comm(), sums_.values);
      inertia += sums_.inertia();
      for (std::size_t c = 0; c < k; ++c) {
        const double count = sums_.count(c);
        if (count == 0) continue;
        seen[c] += count;
        double norm = 0;
        for (std::size_t j = 0; j < d; ++j) {
          double& v = rows[c * d + j];
          v += (sums_.sum(c)[j] - count * v) / seen[c];
          norm += v * v;
        }
        if (!settings_.cosine || norm == 0) continue;
        for (std::size_t j = 0; j < d; ++j) rows[c * d + j] /= std::sqrt(norm);
      }
    }
    // Of the points drawn, at the centres they met, scaled to all points.
    inertia *= static_cast<double>(total_) / static_cast<double>(steps * size);
    log.round(attempt * settings_.rounds + round, inertia, {{"run", static_cast<double>(attempt)}});
    converged = settings_.tolerance > 0 && std::abs(last - inertia) <= settings_.tolerance * inertia;
    last = inertia;
  }
  return finish(std::move(rows), round - 1, converged);
}

/// Assigns every point to its nearest centre.
kmeans::outcome kmeans::finish(std::vector<double> rows, int rounds, bool converged) {
  outcome out;
  sums_ = kmeans_sums(settings_.kclusters, points_.dimension());
  points_.restart();
  assign(kmeans_centres(rows, points_.dimension()), {});
  out.centres = std::move(rows);
  out.assignment = points_.assignment();
  out.inertia = sums_.inertia();
  for (std::size_t c = 0; c < settings_.kclusters; ++c) out.counts.push_back(sums_.count(c));
  out.rounds = rounds;
  out.converged = converged;
  return out;
}

void kmeans::dump(const outcome& best, run_log& log) {
  const std::size_t d = points_.dimension();
  std::vector<std::uint64_t> labels(best.assignment.begin(), best.assignment.end());
  if (settings_.format == "text") {
    // Paracel's kmeans_0: a line a cluster, the cluster and its rows. Each worker writes its own rows.
    dict_type<std::uint64_t, std::vector<std::string>> groups;
    for (std::size_t i = 0; i < labels.size(); ++i)
      groups[labels[i]].push_back(named_ ? names_.text(i) : std::to_string(points_.first_row() + i));
    paracel_dump_dict(groups, "kmeans_");
  }
  model_writer model(*this, "kmeans", settings_.format);
  model.add("centers", std::span<const double>(best.centres), {settings_.kclusters, d});
  model.add("counts", best.counts);
  model.add_rows("labels", std::span<const std::uint64_t>(labels), {}, named_ ? &names_ : nullptr);
  model.fields().add("objective", best.inertia).add("rows", total_).add("rounds", best.rounds)
      .add("converged", best.converged);
  model.settings().add("kclusters", std::uint64_t{settings_.kclusters})
      .add("metric", settings_.cosine ? "cosine" : "euclidean").add("seed", settings_.seed)
      .add("n_init", settings_.n_init).add("batch_size", std::uint64_t{settings_.batch_size})
      .add("tolerance", settings_.tolerance);
  model.finish();
  log.result("inertia", best.inertia);
  log.result("rounds", static_cast<std::uint64_t>(best.rounds));
  log.result("converged", best.converged ? "yes" : "no");
  log.result("output", get_output());
}

}  // namespace paracel::alg
