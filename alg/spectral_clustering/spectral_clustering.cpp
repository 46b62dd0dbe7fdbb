// SPDX-License-Identifier: BSD-3-Clause
#include "spectral_clustering.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// A row of the eigenvectors that is shorter than their mean by this factor is rounding error.
constexpr double nothing = 1e-8;

}  // namespace

std::vector<double> weighted_degrees(const adjacency& links) {
  std::vector<double> degrees(links.rows());
  for (std::size_t v = 0; v < degrees.size(); ++v) {
    for (auto e = links.begin[v]; e < links.begin[v + 1]; ++e) degrees[v] += links.weight_at(e);
  }
  return degrees;
}

std::vector<double> scaled_weights(const adjacency& links, std::span<const double> degrees) {
  std::vector<double> scaled(links.target.size());
  for (std::size_t v = 0; v < links.rows(); ++v) {
    for (auto e = links.begin[v]; e < links.begin[v + 1]; ++e) {
      const double w = links.weight_at(e);
      // Two roots, because the product of two degrees may overflow.
      if (w > 0) scaled[e] = w / std::sqrt(degrees[v]) / std::sqrt(degrees[links.target[e]]);
    }
  }
  return scaled;
}

void add_neighbours(const adjacency& links, std::span<const double> scaled, std::span<const double> degrees,
                    const tall_block& v, tall_block& u) {
  const auto width = static_cast<std::size_t>(v.cols());
  u.setZero(static_cast<Eigen::Index>(links.rows()), v.cols());
  for (std::size_t i = 0; i < links.rows(); ++i) {
    if (!(degrees[i] > 0)) continue;
    double* __restrict row = u.data() + i * width;
    std::copy_n(v.data() + i * width, width, row);
    for (auto e = links.begin[i]; e < links.begin[i + 1]; ++e) {
      const double* __restrict from = v.data() + links.target[e] * width;
      const double x = scaled[e];
      for (std::size_t j = 0; j < width; ++j) row[j] += x * from[j];
    }
  }
}

void unit_rows(tall_block& points, double least) {
  for (Eigen::Index i = 0; i < points.rows(); ++i) {
    const double length = points.row(i).norm();
    if (length > least) points.row(i) /= length;
    else points.row(i).setZero();
  }
}

std::vector<std::int64_t> numbers_by_first(std::span<const std::int64_t> first, std::int64_t none) {
  std::vector<std::size_t> order(first.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if ((first[a] == none) != (first[b] == none)) return first[b] == none;
    return first[a] < first[b];
  });
  std::vector<std::int64_t> number(first.size());
  for (std::size_t n = 0; n < order.size(); ++n) number[order[n]] = static_cast<std::int64_t>(n);
  return number;
}

laplacian_operator::laplacian_operator(Comm comm, const distributed_graph& graph)
    : comm_(std::move(comm)), graph_(graph), borders_(comm_, graph), degrees_(weighted_degrees(graph.out)) {
  const auto own = graph.own();
  degrees_.resize(own + graph.ghosts.size());
  borders_.pull<double>(std::span<const double>(degrees_).first(own), std::span(degrees_).subspan(own));
  scaled_ = scaled_weights(graph.out, degrees_);
}

void laplacian_operator::times(const tall_block& v, tall_block& u) {
  if (comm_.get_size() == 1) return add_neighbours(graph_.out, scaled_, degrees_, v, u);
  const auto width = static_cast<std::size_t>(v.cols());
  const auto own = graph_.own() * width;
  local_.resize(static_cast<Eigen::Index>(degrees_.size()), v.cols());
  std::copy_n(v.data(), own, local_.data());
  borders_.pull_rows<double>(std::span<const double>(v.data(), own),
                             std::span(local_.data() + own, graph_.ghosts.size() * width), width);
  add_neighbours(graph_.out, scaled_, degrees_, local_, u);
}

void laplacian_operator::sum(std::span<double> values) { sum_over_workers(comm_, values); }

void laplacian_operator::largest(std::span<double> values) {
  std::vector<double> all(values.begin(), values.end());
  comm_.allreduce(all, reduce_op::max);
  std::copy(all.begin(), all.end(), values.begin());
}

void spectral_clustering_settings::keys(key_list& k) {
  graph_settings::keys(k);
  k("kclusters", kmeans.clusters, "number of clusters, and of eigenvectors").required().at_least(1).at_most(4096);
  duplicates_key(k, duplicates);
  k("rounds", krylov.steps,
    "maximum number of steps for the eigenvectors, each two products with kclusters + 2 columns")
      .at_least(1)
      .at_most(1000000);
  k("tolerance", krylov.tolerance,
    "largest permitted residual of an eigenvector, relative to 2 - the smallest eigenvalue")
      .above(0);
  k("basis", krylov.basis,
    "columns kept before a restart; 0: ten times kclusters + 2, up to 40 times if rounds would not suffice")
      .at_least(0)
      .at_most(100000);
  k("kmeans_rounds", kmeans.rounds, "maximum number of rounds of a run of k-means").at_least(1).at_most(100000);
  k("n_init", kmeans.n_init, "runs of k-means; the best is kept").at_least(1).at_most(10000);
  k("seed", krylov.seed, "seed of the initial vectors and of k-means").at_least(0);
  k("debug", debug, "print each round");
}

void spectral_clustering_settings::check(const config& from) {
  kclusters_place = from.place_of("kclusters");
  krylov.k = kmeans.clusters;
  kmeans.seed = krylov.seed;
}

void spectral_clustering::solve() {
  auto comm = get_comm();
  auto load = settings_.load_options();
  load.weighted = true;
  load.entries.non_negative = true;
  load.entries.duplicates = settings_.duplicates;
  load.undirected = true;
  load.self_loops = false;
  const auto graph = load_graph_input(comm, settings_, load);
  laplacian_operator op(comm, graph);

  const auto degrees = op.degrees();
  std::vector<std::size_t> active;
  for (std::size_t v = 0; v < graph.own(); ++v)
    if (degrees[v] > 0) active.push_back(v);
  std::uint64_t before = 0, total = 0;
  const auto counts = comm.allgather(static_cast<std::uint64_t>(active.size()));
  for (std::size_t w = 0; w < counts.size(); ++w) {
    if (w < graph.rank) before += counts[w];
    total += counts[w];
  }
  if (total == 0)
    throw data_error(settings_.input.front() + ": found no edge between two vertices with a weight above 0");
  if (settings_.kmeans.clusters > total) {
    throw config_error(settings_.kclusters_place + ": found number " + std::to_string(settings_.kmeans.clusters) +
                       ", want at most the number of vertices with edges, " + std::to_string(total));
  }

  run_log log(*this, settings_.krylov.steps, "residual", settings_.debug);
  int round = 0;
  settings_.krylov.progress = [&](int /*step*/, std::size_t good, double residual) {
    log.round(++round, residual, {{"stage", 1}, {"converged", static_cast<double>(good)}});
  };
  settings_.krylov.job = this;
  const auto found = block_krylov(op, settings_.krylov);
  const auto steps = round;
  const auto width = found.sigma.size();
  std::vector<double> eigenvalues(width);
  for (std::size_t j = 0; j < width; ++j) eigenvalues[j] = 2 - found.sigma[j];

  // The left vectors are products with I + N, so they are zero for vertices without edges; the right ones may not be.
  tall_block points(static_cast<Eigen::Index>(active.size()), static_cast<Eigen::Index>(width));
  for (std::size_t i = 0; i < active.size(); ++i)
    points.row(static_cast<Eigen::Index>(i)) = found.u.row(static_cast<Eigen::Index>(active[i]));
  unit_rows(points, nothing * std::sqrt(static_cast<double>(width) / static_cast<double>(total)));
  sample_rows rows;
  rows.dense = true;
  rows.columns = static_cast<std::uint32_t>(width);
  rows.value.assign(points.data(), points.data() + points.size());
  rows.row_count = active.size();
  rows.first_row = before;
  rows.rows_total = total;
  kmeans_points samples(std::move(rows), false);
  log.watch("inertia", settings_.kmeans.rounds);
  settings_.kmeans.progress = [&](int run, int in_run, double inertia, std::optional<double> changed) {
    log.round(in_run, inertia, {{"stage", 2}, {"run", static_cast<double>(run)}, {"changed", changed.value_or(0)}});
  };
  const auto best = kmeans_solver(*this, samples, total, settings_.kmeans).best();

  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> first(settings_.kmeans.clusters, none);
  for (std::size_t i = active.size(); i-- > 0;)
    first[best.assignment[i]] = static_cast<std::int64_t>(graph.number(active[i]));
  comm.allreduce(first, reduce_op::min);
  const auto number = numbers_by_first(first, none);
  std::vector<std::int64_t> labels(graph.own(), -1);
  for (std::size_t i = 0; i < active.size(); ++i) labels[active[i]] = number[best.assignment[i]];
  const auto clusters =
      static_cast<std::uint64_t>(std::count_if(first.begin(), first.end(), [](std::int64_t f) { return f != none; }));

  model_writer out(*this, "spectral_clustering", settings_.format);
  out.fields()
      .add("vertices", graph.vertices_total())
      .add("isolated", graph.vertices_total() - total)
      .add("clusters", clusters)
      .add("inertia", best.inertia)
      .add("converged", found.converged);
  out.add("eigenvalues", eigenvalues);
  if (settings_.dump) out.add_rows<std::int64_t>("label", labels, {}, &graph.ids);
  out.finish();
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("isolated", graph.vertices_total() - total);
  log.result("rounds", static_cast<std::uint64_t>(steps));
  log.result("converged", std::string(found.converged ? "yes" : "no"));
  for (std::size_t j = 0; j < width; ++j) log.result(("eigenvalue_" + std::to_string(j + 1)).c_str(), eigenvalues[j]);
  const double residual = *std::max_element(found.residual.begin(), found.residual.end());
  log.result("residual", residual);
  if (!found.converged)
    warn_not_converged(get_comm(), steps, "the residual of an eigenvector", residual / found.sigma[0],
                       settings_.krylov.tolerance, "labels may be wrong; raise rounds, basis or tolerance");
  log.result("clusters", clusters);
  log.result("inertia", best.inertia);
  log.result("output", get_output());
}

}  // namespace paracel::alg
