// SPDX-License-Identifier: BSD-3-Clause
#include "steady_state_inversion.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>

#include <paracel/com_queue.hpp>
#include <paracel/dense_rows.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/cpu_dispatch.hpp"

namespace paracel::alg {

namespace {

// Scores beyond this do not converge: the graph may have no solution. The largest double is 1e308.
constexpr double score_limit = 1e150;

// Number of names in an error message; a file has all of them.
constexpr std::size_t names_shown = 10;

using numbers = std::vector<double>;

/// What a round finds out, over all workers: the number of short vertices, their shortfall, |q - p|, and whether one
/// demands more than its neighbours have, or its score has diverged.
enum found_at : std::size_t { vertices, lacking, distance, hopeless, found_count };

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < names_shown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > names_shown) text += " and " + std::to_string(names.size() - names_shown) + " more";
  return text;
}

/// The elements of all workers, in rank order.
template <class T>
std::vector<T> gathered(Comm comm, const std::vector<T>& mine) {
  if (comm.get_size() == 1) return mine;
  std::vector<T> all;
  for (const auto& part : comm.allgather(mine)) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Throws the error of the first worker that has one, on every worker.
void agree_on(Comm comm, const std::string& wrong) {
  for (const auto& said : comm.allgather(wrong)) {
    if (!said.empty()) throw data_error(said);
  }
}

/// The sum of term(k) for k from `begin` to `end`, in four parts whose order is always the same, so that additions need
/// not wait for one another.
template <class F>
PARACEL_INLINE double sum_in_parts(std::uint64_t begin, std::uint64_t end, F&& term) {
  double part[4] = {0, 0, 0, 0};
  auto k = begin;
  for (; k + 4 <= end; k += 4) {
    for (unsigned l = 0; l < 4; ++l) part[l] += term(k + l);
  }
  for (; k < end; ++k) part[0] += term(k);
  return (part[0] + part[1]) + (part[2] + part[3]);
}

/// g(t) = sum mass w / (w + rest t), and -g'(t), by vectors of four.
PARACEL_INLINE void sum_body(const double* mass, const double* weight, const double* rest, std::size_t n, double t,
                             double& g, double& slope) {
  using four = double __attribute__((vector_size(32)));
  const auto at = [](const double* from) {
    four v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  };
  four all_g{};
  four all_slope{};
  const auto add = [&](four m, four w, four r) {
    const four d = 1 / (w + r * t);
    const four part = m * w * d;
    all_g += part;
    all_slope += part * r * d;
  };
  std::size_t k = 0;
  for (; k + 4 <= n; k += 4) add(at(mass + k), at(weight + k), at(rest + k));
  if (k < n) {
    // The last ones, and edges without mass.
    four m{};
    four w = four{} + 1;
    four r{};
    std::memcpy(&m, mass + k, (n - k) * sizeof(double));
    std::memcpy(&w, weight + k, (n - k) * sizeof(double));
    std::memcpy(&r, rest + k, (n - k) * sizeof(double));
    add(m, w, r);
  }
  g = (all_g[0] + all_g[1]) + (all_g[2] + all_g[3]);
  slope = (all_slope[0] + all_slope[1]) + (all_slope[2] + all_slope[3]);
}

}  // namespace

double steady_root(const steady_edges& edges, double target, double from) {
  static const auto sums = compiled_for<&sum_body>::this_cpu();
  constexpr double small_step = 1e-7;
  const auto n = edges.mass.size();
  const double most = sum_in_parts(0, n, [&](std::uint64_t k) { return edges.mass[k]; });
  if (!(most > target)) return std::numeric_limits<double>::infinity();
  // g(t) at t = 1/x falls from `most`; 1/g is concave, so a Newton step from beyond the root ends before it, and all
  // further steps approach it from there. The error after a step is about the square of the step, relative to t.
  double t = 1 / from;
  bool before = false;
  for (int step = 0; step < 200; ++step) {
    double g = 0;
    double slope = 0;
    sums(edges.mass.data(), edges.weight.data(), edges.rest.data(), n, t, g, slope);
    double next = t - (1 / g - 1 / target) * g * g / slope;
    if (before && !(next > t)) break;  // converged to the last digit
    before = before || g >= target;
    if (!(next > 0)) next = t / 16;
    const bool last = std::abs(next - t) <= small_step * t;
    t = next;
    if (last) break;
  }
  return 1 / t;
}

// ---- config

void steady_settings::keys(key_list& k) {
  using when = feasibility_check;
  k.files("bigraph_input", bigraph_input, "edges: left,right,weight; left ids end in L, right ones in R").required();
  entries.keys(k, "left, right and weight of bigraph_input");
  duplicates_key(k, duplicates);
  k.files("distribution_input", distribution_input, "shares: id,p for the vertices of both sides").required();
  output_keys(k, output);
  k("epsilon", epsilon, "a right vertex is short if it receives less than p*(1 - epsilon)").above(0).at_most(0.5);
  k("rounds", rounds, "maximum number of rounds").at_least(0).at_most(1000000000);
  k("ktop", ktop, "number of transitions to write for each left vertex, the most probable first")
      .at_least(0)
      .at_most(1000000000);
  k("feasibility", feasibility,
    "when to search for a proof that no scores exist: after all rounds, before them, or never",
    {{"after", when::after}, {"before", when::before}, {"never", when::never}});
  format_key(k, format, "format of the results: text; npy: text and npy");
  k("debug", debug, "print each round");
}

steady_state_inversion::steady_state_inversion(Comm comm, const std::string& server_info,
                                               const steady_settings& settings)
    : paralg(server_info, std::move(comm), settings.output),
      settings_(settings),
      log_(*this, settings.rounds, "l1", settings.debug) {}

// ---- loading

/// Loads the graph in both orientations: the sums of rows need it by left vertices, the roots by right ones. Vertex
/// numbers are the ranks of ids among all first and all second fields, so they mean the same vertex in both.
void steady_state_inversion::load() {
  auto comm = get_comm();
  vector_options shares;
  shares.columns = 1;
  shares.everywhere = true;
  const auto distribution = load_vectors(comm, settings_.distribution_input, shares);
  std::unordered_map<std::string, double> p;
  p.reserve(distribution.rows());
  const auto& shares_file = settings_.distribution_input.front();
  for (std::size_t i = 0; i < distribution.rows(); ++i) {
    const auto name = distribution.ids.text(i);
    const double v = distribution.value[i];
    if (v < 0) throw data_error(shares_file + ": found p " + json_number(v) + " of " + name + ", want at least 0");
    if (!name.ends_with('L') && !name.ends_with('R'))
      throw data_error(shares_file + ": found vertex " + name + ", want a name that ends in L or R");
    if (!p.emplace(name, v).second) throw data_error(shares_file + ": found vertex " + name + " twice");
  }

  const auto& file = settings_.bigraph_input.front();
  std::string wrong;
  entry_options options;
  settings_.entries.apply(options);
  options.duplicates = settings_.duplicates;
  options.ids = entry_options::id_kind::name;
  options.non_negative = true;
  const auto links = load_sparse_both_ways(comm, settings_.bigraph_input, options);
  require_some(links.rows.entries_total, settings_.bigraph_input, "edge, want left,right,weight");
  for (const bool of_left : {true, false}) {
    const auto& rows = of_left ? links.rows : links.columns;
    auto& to = of_left ? left_ : right_;
    to.first = rows.row_first[comm.get_rank()];
    to.total = rows.rows_total();
    to.ids = rows.row_ids;
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      const auto name = rows.row_ids.name(i);
      // Paracel's graphs also have edges from right to left, which are ignored.
      const bool counts = name.ends_with(of_left ? 'L' : 'R');
      const auto share = p.find(std::string(name));
      if (!counts && !name.ends_with(of_left ? 'R' : 'L')) {
        wrong = file + ": found vertex " + std::string(name) + ", want a name that ends in L or R";
      }
      if (counts && share == p.end())
        wrong = file + ": vertex " + std::string(name) + " has no share in " + shares_file;
      to.p.push_back(counts && share != p.end() ? share->second : 0);
      const auto columns = rows.columns_of(i);
      const auto values = rows.values_of(i);
      for (std::size_t k = 0; counts && k < columns.size(); ++k) {
        const auto other = rows.column_ids.name(columns[k]);
        if (!other.ends_with(of_left ? 'R' : 'L')) {
          wrong = file + ": found an edge between " + std::string(name) + " and " + std::string(other) +
                  ", want edges from left to right";
        }
        if (!std::isfinite(values[k])) {
          wrong = file + ": found weights between " + std::string(name) + " and " + std::string(other) +
                  " whose sum is not finite";
        }
        if (values[k] == 0) continue;
        to.other.push_back(rows.column_number[columns[k]]);
        to.weight.push_back(values[k]);
      }
      to.begin.push_back(to.other.size());
    }
  }
  agree_on(comm, wrong);
  find_lonely(p);
  all_p_ = gathered(comm, left_.p);
}

/// Fails if a right vertex with a positive share has no incoming edges.
void steady_state_inversion::find_lonely(const std::unordered_map<std::string, double>& p) const {
  auto comm = get_comm();
  std::int64_t reached = 0;
  for (std::size_t j = 0; j < right_.own(); ++j)
    reached += right_.begin[j + 1] > right_.begin[j] && right_.p[j] > 0 ? 1 : 0;
  comm.allreduce(reached);
  const auto wants = [](const auto& vertex) { return vertex.second > 0 && vertex.first.ends_with('R'); };
  if (std::count_if(p.begin(), p.end(), wants) == reached) return;
  std::vector<std::string> mine;
  for (std::size_t j = 0; j < right_.own(); ++j) {
    if (right_.begin[j + 1] > right_.begin[j]) mine.push_back(right_.ids.text(j));
  }
  auto names = gathered(comm, mine);
  std::sort(names.begin(), names.end());
  std::vector<std::string> lonely;
  for (const auto& vertex : p) {
    if (wants(vertex) && !std::binary_search(names.begin(), names.end(), vertex.first)) lonely.push_back(vertex.first);
  }
  std::sort(lonely.begin(), lonely.end());
  throw data_error(settings_.bigraph_input.front() + ": infeasible: no edge leads to " + joined(lonely) + ", which " +
                   (lonely.size() == 1 ? "is" : "are") + " to receive something");
}

// ---- the rounds

void steady_state_inversion::solve() {
  load();
  if (settings_.feasibility == feasibility_check::before) check_feasibility();
  iterate();
  dump();
}

/// What own right vertices receive and, with `improve`, better scores for those that receive too little.
void steady_state_inversion::measure(com_context& c, bool improve) {
  const std::span<const double> sums = c.get_obj<numbers>("sums");
  const std::span<const double> scores = c.get_obj<numbers>("scores");
  // p_i / sum_i once a vertex, not once an edge; vertices without share or edges contribute nothing.
  numbers rates(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) rates[i] = all_p_[i] > 0 && sums[i] > 0 ? all_p_[i] / sums[i] : 0;

  auto& found = c.put_obj("found", numbers(found_count));
  auto& received = c.put_obj("received", numbers(right_.own()));
  auto& better = c.put_obj("better", numbers(right_.own()));
  steady_edges edges;
  for (std::size_t j = 0; j < right_.own(); ++j) {
    const double p = right_.p[j];
    const double score = better[j] = scores[right_.first + j];
    const double q = score * sum_in_parts(right_.begin[j], right_.begin[j + 1],
                                          [&](std::uint64_t k) { return right_.weight[k] * rates[right_.other[k]]; });
    received[j] = q;
    found[distance] += std::abs(q - p);
    if (q >= p * (1 - settings_.epsilon)) continue;
    found[vertices] += 1;
    found[lacking] += p * (1 - settings_.epsilon) - q;
    if (!improve) continue;
    edges.resize(right_.begin[j + 1] - right_.begin[j]);
    std::size_t n = 0;
    for (auto k = right_.begin[j]; k < right_.begin[j + 1]; ++k) {
      const auto i = right_.other[k];
      const double w = right_.weight[k];
      edges.mass[n] = all_p_[i];
      edges.weight[n] = w;
      edges.rest[n] = std::max(0.0, sums[i] - w * score);
      n += all_p_[i] > 0 ? 1 : 0;
    }
    edges.resize(n);
    const double x = steady_root(edges, p * (1 - settings_.epsilon / 2), score);
    if (x < score_limit) better[j] = std::max(x, score);
    else found[hopeless] = 1;
  }
}

void steady_state_inversion::iterate() {
  com_queue q(*this);
  q.init_with_broadcast_data("scores", gathered(get_comm(), right_.p));
  q.add([&](com_context& c) {
    const auto& scores = c.get_obj<numbers>("scores");
    auto& sums = c.put_obj("sums", numbers());
    for (std::size_t i = 0; i < left_.own(); ++i) {
      sums.push_back(sum_in_parts(left_.begin[i], left_.begin[i + 1],
                                  [&](std::uint64_t k) { return left_.weight[k] * scores[left_.other[k]]; }));
    }
  });
  q.add(all_gather("sums"));
  q.add([&](com_context& c) { measure(c, c.step_no() <= settings_.rounds); });  // the last superstep: no better scores
  q.add(all_reduce("found"));
  q.add(all_gather("better"));
  q.add([](com_context& c) {
    const auto& found = c.get_obj<numbers>("found");
    c.set_metric("l1", found[distance]);
    c.set_metric("short", found[vertices]);
    c.set_metric("lacking", found[lacking]);
    if (found[hopeless] == 0) c.get_obj<numbers>("scores").swap(c.get_obj<numbers>("better"));
  });
  q.set_compare_criterion_of_node0([](com_context& c) {
    const auto& found = c.get_obj<numbers>("found");
    return found[vertices] == 0 || found[hopeless] > 0;
  });
  q.set_max_iter(settings_.rounds + 1);
  q.set_watch([&](const superstep_report& r) {
    const auto& m = r.metrics;
    if (r.step > 1) log_.round(r.step - 1, m[0].second, {{"short", m[1].second}, {"lacking", m[2].second}});
  });
  using results = std::tuple<numbers, numbers, numbers, numbers>;
  q.close_each_with([](com_context& c) {
    return results(c.get_obj<numbers>("scores"), c.get_obj<numbers>("sums"), c.get_obj<numbers>("received"),
                   c.get_obj<numbers>("found"));
  });
  numbers found;
  std::tie(all_scores_, all_sums_, received_, found) = q.exec<results>();

  if (found[vertices] > 0 && settings_.feasibility == feasibility_check::after) check_feasibility();
  log_.result("rounds", static_cast<std::uint64_t>(q.steps() - 1));
  log_.result("short", static_cast<std::uint64_t>(found[vertices]));
  log_.result("l1", found[distance]);
  converged_ = found[vertices] == 0;
  log_.result("converged", std::string(converged_ ? "yes" : "no"));
  if (converged_) return;
  warn_not_converged(get_comm(), q.steps() - 1, "the number of vertices that receive too little", found[vertices], 0,
                     found[hopeless] > 0
                         ? "no finite scores exist: feasibility \"after\" names the vertices that prove it"
                         : "raise rounds or epsilon");
}

/// Rank 0 gathers the edges and searches for a set with more demand than supply.
void steady_state_inversion::check_feasibility() {
  auto comm = get_comm();
  const auto first = comm.get_rank() == 0;
  const auto to_first = [&](const auto& mine) {
    using list = std::decay_t<decltype(mine)>;
    std::vector<list> out(comm.get_size());
    std::vector<list> in;
    out[0] = mine;
    comm.alltoall(out, in);
    list all;
    for (auto& part : in) {
      for (auto& v : part) all.push_back(std::move(v));
    }
    return all;
  };
  std::vector<std::uint64_t> degree;
  for (std::size_t j = 0; j < right_.own(); ++j) degree.push_back(right_.begin[j + 1] - right_.begin[j]);
  const auto degrees = to_first(degree);
  const auto others = to_first(right_.other);
  auto demand = to_first(right_.p);
  const auto left_names = to_first(left_.names());
  const auto right_names = to_first(right_.names());
  std::string said;
  if (first) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    std::size_t at = 0;
    for (std::uint32_t j = 0; j < degrees.size(); ++j) {
      for (std::uint64_t k = 0; k < degrees[j]; ++k, ++at)
        edges.emplace_back(static_cast<std::uint32_t>(others[at]), j);
    }
    for (auto& d : demand) d *= 1 - settings_.epsilon;
    const auto s = find_infeasibility(all_p_, demand, edges);
    if (s.exists()) {
      const auto names = [](const std::vector<std::uint32_t>& which, const std::vector<std::string>& all) {
        std::vector<std::string> some;
        for (const auto v : which) some.push_back(all[v]);
        return some;
      };
      const auto right = names(s.right, right_names);
      write_lines(*this, right, "infeasible_");
      said = settings_.distribution_input.front() + ": infeasible: " + joined(right) + " must receive at least " +
             json_number(s.wanted) + ", but all vertices with edges to them, " + joined(names(s.left, left_names)) +
             ", have " + json_number(s.available);
      if (!s.full_left.empty() && s.pushed > s.room) {
        said += "; " + joined(names(s.full_right, right_names)) + " must receive all of " +
                joined(names(s.full_left, left_names)) + ", " + json_number(s.pushed) + ", but should have " +
                json_number(s.room / (1 - settings_.epsilon));
      }
    }
  }
  comm.bcast(said);
  if (!said.empty()) throw data_error(said);
}

// ---- results

void steady_state_inversion::dump() {
  std::vector<std::string> lines;
  for (std::size_t j = 0; j < right_.own(); ++j) {
    if (!right_.ids.name(j).ends_with('R')) continue;
    auto line = right_.ids.text(j) + '\t';
    append_text(line, all_scores_[right_.first + j]);
    lines.push_back(std::move(line));
  }
  paracel_dump_vector(lines, "score_", "\n");

  const auto right_ids = gathered(get_comm(), right_.names());
  lines.clear();
  std::vector<std::pair<double, std::uint64_t>> ways;
  for (std::size_t i = 0; i < left_.own(); ++i) {
    ways.clear();
    const double sum = all_sums_[left_.first + i];
    for (auto k = left_.begin[i]; k < left_.begin[i + 1]; ++k) {
      if (sum > 0) ways.emplace_back(left_.weight[k] * all_scores_[left_.other[k]] / sum, left_.other[k]);
    }
    if (ways.empty()) continue;
    // Numbers ascend with ids.
    const auto better = [](const auto& a, const auto& b) {
      return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    const auto n = std::min<std::size_t>(ways.size(), settings_.ktop);
    std::partial_sort(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(n), ways.end(), better);
    auto line = left_.ids.text(i) + '\t';
    for (std::size_t k = 0; k < n; ++k) {
      if (k > 0) line += '|';
      line += right_ids[ways[k].second] + ':';
      append_text(line, ways[k].first);
    }
    lines.push_back(std::move(line));
  }
  paracel_dump_vector(lines, "transfer_prob_matrix_", "\n");
  log_.result("output", get_output());
  if (settings_.format != result_format::npy) return;
  id_list ids = id_list::empty(false);
  std::vector<double> scores;
  std::vector<double> received;
  for (std::size_t j = 0; j < right_.own(); ++j) {
    if (!right_.ids.name(j).ends_with('R')) continue;
    ids.push_back(right_.ids.name(j));
    scores.push_back(all_scores_[right_.first + j]);
    received.push_back(received_[j]);
  }
  model_writer model(*this, "steady_state_inversion", result_format::npy);
  model.fields().add("converged", converged_);
  model.add_rows("score", std::span<const double>(scores), {}, &ids);
  model.add_rows("received", std::span<const double>(received), {}, &ids);
  model.finish();
}

}  // namespace paracel::alg
