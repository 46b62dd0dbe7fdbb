// SPDX-License-Identifier: BSD-3-Clause
#include "mvv.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include <paracel/array.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/run_log.hpp"
#include "alg/common/output/server_state.hpp"

namespace paracel::alg {

namespace {

constexpr const char* values_key = "mvv_values";
constexpr const char* default_plugin = "libparacel_default.so";
constexpr const char* default_maximum = "paracel_max";

}  // namespace

void mvv_settings::keys(key_list& k) {
  graph_settings::keys(k);
  k.plugin("update_file", update_file, "mvv only: plug-in that contains update_func; default: the framework's")
      .not_resumable();
  k("update_func", update_func,
    "mvv only: function that combines a value on the servers with a new one; default paracel_max")
      .not_resumable();
  checkpoint_keys(k);
}

void mvv_settings::check(const config& from) {
  refuse_keys(from, {"checkpoint_every", "resume"}, "not with mvv, which has no supersteps; want mvv_pregel");
  if (update_file.empty()) update_file = default_plugin;
  if (update_func.empty()) update_func = default_maximum;
}

void mvv_pregel_settings::check(const config& from) const {
  refuse_keys(from, {"update_file", "update_func"}, "not with mvv_pregel, which keeps nothing in the servers");
}

namespace {

/// Whether the text is an integer that a double does not represent.
bool is_rounded(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  std::uint64_t n = 0;
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const double greatest = std::ldexp(1, 64);
  return !parse_id(text, n) || static_cast<double>(n) >= greatest ||
         static_cast<std::uint64_t>(static_cast<double>(n)) != n;
}

}  // namespace

std::vector<double> values_of_ids(Comm comm, const distributed_graph& graph, const std::string& file) {
  std::vector<double> values(graph.own());
  std::string wrong;
  for (std::size_t v = 0; v < values.size() && wrong.empty(); ++v) {
    const auto name = graph.ids.text(v);
    if (!parse_number(name, values[v]))
      wrong = file + ": found the id " + quoted_text(name) + ", want a number: it is the vertex's value";
    else if (is_rounded(name))
      wrong = file + ": found the id " + quoted_text(name) + ", want a number that a double represents exactly";
  }
  for (const auto& text : comm.allgather(wrong))
    if (!text.empty()) throw data_error(text);
  return values;
}

void max_vertex_value_base::solve() {
  const auto graph = load_graph_input(get_comm(), settings_, settings_.load_topology());
  std::vector<double> values;
  std::uint64_t rounds = 0;
  if (graph.ids.numeric() && by_rank()) {
    values.resize(graph.own());
    std::iota(values.begin(), values.end(), static_cast<double>(graph.first[graph.rank]));
    rounds = spread(graph, values);
    std::vector<std::uint64_t> numbers(values.size());
    for (std::size_t v = 0; v < values.size(); ++v) numbers[v] = static_cast<std::uint64_t>(values[v]);
    const auto ids = ids_of_numbers(get_comm(), graph, numbers);
    for (std::size_t v = 0; v < values.size(); ++v) values[v] = static_cast<double>(ids.number(v));
    write_vertex_values<std::uint64_t>(*this, settings_, graph, "mvv", "vertex_val", ids.numbers());
  } else {
    values = values_of_ids(get_comm(), graph, settings_.input.front());
    rounds = spread(graph, values);
    write_vertex_values<double>(*this, settings_, graph, "mvv", "vertex_val", values);
  }
  run_log log(*this, 0);
  std::vector<double> sums(1);
  for (const auto v : values) sums[0] += v;
  get_comm().allreduce(sums);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("rounds", rounds);
  log.result("sum_of_values", sums[0]);
  log.result("output", get_output());
}

std::uint64_t max_vertex_value_pregel::spread(const distributed_graph& graph, std::vector<double>& values) {
  pregel_run<mvv_program> run(get_comm(), graph);
  run.values() = std::move(values);
  run.identify(pregel_identity("mvv_pregel", {graph.ids.numeric() ? 1U : 0U}));
  if (settings_.resume) run.restore(settings_.checkpoint_folder());
  pregel_options options;
  options.checkpoint_every = settings_.checkpoint_every;
  options.checkpoint_folder = settings_.checkpoint_folder();
  options.job = this;
  const auto rounds = run.run(options).supersteps;
  values = std::move(run.values());
  return rounds;
}

bool max_vertex_value::by_rank() const {
  return settings_.update_file == default_plugin && settings_.update_func == default_maximum;
}

std::uint64_t max_vertex_value::spread(const distributed_graph& graph, std::vector<double>& values) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  const auto own = graph.own();
  if (graph.vertices_total() == 0) return 0;
  array<double> all(*this, values_key, graph.vertices_total(), none);
  std::vector<double> best(own + graph.ghosts.size(), none);
  std::vector<std::uint32_t> touched;
  std::vector<std::uint64_t> indices;
  std::vector<double> deltas;
  std::vector<std::uint8_t> changed(own, 1);
  // So that a vertex without incoming edges has its value, too.
  if (own > 0 && !resumed()) all.write(graph.first[graph.rank], values);
  paracel_sync();
  // Updates that the replacement of a worker resends change nothing: they are maxima. It also rereads the same values,
  // because no worker sends more until the sum of `news`, at the beginning of the next round, includes its part.
  std::int64_t news = 1;
  resumable_loop loop(*this);
  keep_size(loop, graph).keep("values", values).keep("changed", changed).keep("news", news);
  while (loop.next()) {
    if (loop.iteration() > 0) get_comm().allreduce(news);
    if (news == 0) {
      loop.stop();
      continue;
    }
    for (std::size_t v = 0; v < own; ++v) {
      if (changed[v] == 0) continue;
      for (const auto t : graph.out.of(v)) {
        if (best[t] == none) touched.push_back(t);
        best[t] = std::max(best[t], values[v]);
      }
    }
    std::sort(touched.begin(), touched.end());
    for (const auto t : touched) {
      // An own vertex with a greater value needs no update.
      if (t >= own || best[t] > values[t]) {
        indices.push_back(graph.number(t));
        deltas.push_back(best[t]);
      }
      best[t] = none;
    }
    if (!indices.empty()) all.update_at(indices, deltas, {settings_.update_file, settings_.update_func});
    touched.clear();
    indices.clear();
    deltas.clear();
    paracel_sync();
    auto before = values;
    if (own > 0) all.read(graph.first[graph.rank], std::span(values));
    news = 0;
    for (std::size_t v = 0; v < own; ++v) {
      changed[v] = values[v] != before[v] ? 1 : 0;
      news += changed[v];
    }
  }
  return static_cast<std::uint64_t>(loop.iteration() - 1);  // the last one only found that there was nothing new
}

}  // namespace paracel::alg
