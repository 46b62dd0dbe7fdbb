// SPDX-License-Identifier: BSD-3-Clause
//
// Maximum value: each vertex starts with its id as a number and ends with the greatest number of any vertex from which
// it can be reached (itself included). Two implementations:
//
// `mvv_pregel`: a vertex program. `mvv`: the values are an array on the servers, changed by an update function
// (`update_file`, `update_func`: Paracel's keys; default: the framework's maximum). For each target of its changed
// vertices a worker pushes the greatest of their values, with one request to each shard, and reads its own part of the
// array when all have pushed.
//
// Where ids are numbers, what spreads are the numbers of the vertices, which are the ranks of their ids: these are
// exact in doubles, while ids above 2^53 are not. Another update function than the maximum gets the ids themselves.
//
// Source: the example of G. Malewicz et al., "Pregel", SIGMOD 2010, section 2; Paracel 0.3 had both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/pregel.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

struct mvv_program {
  using value_type = double;  // the caller sets the initial value
  using message_type = double;
  static void combine(double& into, double more) {
    if (more > into) into = more;
  }
  template <class Vertex>
  void compute(Vertex& v, std::span<const double> messages) {
    bool news = v.superstep() == 0;
    for (const auto m : messages) {
      if (m <= v.value()) continue;
      v.value() = m;
      news = true;
    }
    if (news) v.send_to_targets(v.value());
    v.vote_to_halt();
  }
};

struct mvv_settings : graph_settings {
  static constexpr auto program = "mvv";
  static constexpr auto summary = "the greatest id that reaches each vertex, by values on the servers";
  void keys(key_list& k);
  /// Throws: config_error for keys of the other implementation.
  void check(const config& from);

  std::string update_file;
  std::string update_func;
};

struct mvv_pregel_settings : mvv_settings {
  static constexpr auto program = "mvv_pregel";
  static constexpr auto summary = "the greatest id that reaches each vertex, as a vertex program";
  /// As that of mvv_settings.
  void check(const config& from) const;
};

/// The ids of the own vertices as numbers. A collective. Throws: data_error that begins with `file` and names an id
/// that is not a number, or an integer that a double rounds, on every worker.
std::vector<double> values_of_ids(Comm comm, const distributed_graph& graph, const std::string& file);

/// Reads the graph, computes, writes vertex_val_<rank>.
class max_vertex_value_base : public graph_program<mvv_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;

 protected:
  /// Whether the greatest value is wanted, so that its rank may stand for it.
  [[nodiscard]] virtual bool by_rank() const { return true; }
  /// Replaces the initial `values` of the own vertices by the final ones; returns the number of rounds.
  virtual std::uint64_t spread(const distributed_graph& graph, std::vector<double>& values) = 0;
};

class max_vertex_value final : public max_vertex_value_base {
 public:
  using max_vertex_value_base::max_vertex_value_base;

 private:
  [[nodiscard]] bool by_rank() const override;
  std::uint64_t spread(const distributed_graph& graph, std::vector<double>& values) override;
};

class max_vertex_value_pregel final : public max_vertex_value_base {
 public:
  using settings_type = mvv_pregel_settings;

  using max_vertex_value_base::max_vertex_value_base;

 private:
  std::uint64_t spread(const distributed_graph& graph, std::vector<double>& values) override;
};

}  // namespace paracel::alg
