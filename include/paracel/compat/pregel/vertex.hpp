// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's base class of vertex programs. The state of a vertex is stored on the servers under its id; `compute`
// is called for each edge of each active vertex and changes the neighbour's state with an update of `pt`; then each
// vertex's value becomes `mutable_value` of its state, and a vertex whose value changed is active in the next
// superstep.
//
// Differences from 0.3: a vertex's state begins with its own value (there it began with the first update, so that a
// vertex could lose its value); vertices without outgoing edges exist, too; supersteps are separated by a barrier of
// the job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <paracel/graph.hpp>
#include <paracel/paralg.hpp>
#include <paracel/types.hpp>

#include "../standard_headers.hpp"

namespace paracel::pregel_compat {

/// Assigns vertices to workers: those with outgoing edges to the worker that has these, all others by a hash of their
/// names. `rows`: the vertices with outgoing edges here, `others`: the targets of their edges. A collective.
/// Returns those of `others`, of any worker, that belong to this worker.
inline std::vector<std::string> vertices_without_edges_out(Comm comm, const std::vector<std::string>& rows,
                                                           const std::vector<std::string>& others) {
  using names = std::vector<std::string>;
  std::vector<names> have(comm.get_size()), lead(comm.get_size()), all_have, all_lead;
  const auto place = [&](const std::string& name) { return std::hash<std::string_view>()(name) % comm.get_size(); };
  for (const auto& name : rows) have[place(name)].push_back(name);
  for (const auto& name : others) lead[place(name)].push_back(name);
  comm.alltoall(have, all_have);
  comm.alltoall(lead, all_lead);
  names known, found;
  for (const auto& list : all_have) known.insert(known.end(), list.begin(), list.end());
  std::sort(known.begin(), known.end());
  for (const auto& list : all_lead)
    for (const auto& name : list)
      if (!std::binary_search(known.begin(), known.end(), name)) found.push_back(name);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace paracel::pregel_compat

namespace paracel::pregel {

/// VertexVal: the value of a vertex, comparable. MsgVal: its state on the servers.
/// Throws: what paralg throws. Blocks: every public function except compute and mutable_value is a collective.
template <class VertexVal, class MsgVal>
class vertex {
 public:
  using id_value_function = std::function<VertexVal(const std::string& id)>;
  using edge_value_function = std::function<VertexVal(const std::string& from, const std::string& to, double weight)>;

  /// The initial value of a vertex is init_func(its id).
  vertex(Comm comm, std::string server_info, std::string input, std::string output, parser_type parser,
         id_value_function init_func)
      : vertex(std::move(comm), std::move(server_info), std::move(input), std::move(output), std::move(parser)) {
    init_vars(init_func);
  }
  /// The initial value of a vertex is the result of init_func for the last of its edges, in the order of their target
  /// ids; a vertex without outgoing edges begins with VertexVal().
  vertex(Comm comm, std::string server_info, std::string input, std::string output, parser_type parser,
         edge_value_function init_func)
      : vertex(std::move(comm), std::move(server_info), std::move(input), std::move(output), std::move(parser)) {
    init_vars(init_func);
  }
  virtual ~vertex() { delete pt; }
  vertex(const vertex&) = delete;
  vertex& operator=(const vertex&) = delete;

  void init_vars(id_value_function func) {
    for (const auto& id : own_) vertex_val_map[id] = func(id);
    begin();
  }
  void init_vars(edge_value_function func) {
    for (const auto& id : own_) vertex_val_map[id] = VertexVal();
    for (const auto& id : own_) {
      const auto edges = grp.adjacent(id);
      std::vector<std::pair<std::string, double>> ordered(edges.begin(), edges.end());
      std::sort(ordered.begin(), ordered.end());
      for (const auto& [to, weight] : ordered) vertex_val_map[id] = func(id, to, weight);
    }
    begin();
  }

  /// Called for each edge of each active vertex with the vertex's value.
  virtual void compute(const std::string& neighbor, double wgt, const VertexVal& val) = 0;
  /// The value that a vertex computes from its state.
  virtual VertexVal mutable_value(const MsgVal& val) = 0;

  /// Reads the states of this worker's vertices; those whose value changes become active.
  void vote_to_halt() {
    std::vector<MsgVal> states;
    if constexpr (std::is_convertible_v<VertexVal, MsgVal>) {
      states = pt->template paracel_read_multi<MsgVal>(own_);
    }
    for (std::size_t i = 0; i < own_.size(); ++i) {
      auto& value = vertex_val_map[own_[i]];
      bool changed = false;
      MsgVal state{};
      bool there = i < states.size();
      if (there) {
        state = std::move(states[i]);
      } else {
        there = pt->paracel_read(own_[i], state);
      }
      if (there) {
        auto next = mutable_value(state);
        changed = !(next == value);
        value = std::move(next);
      }
      vertex_active_map[own_[i]] = changed;
    }
  }

  /// Runs until no vertex of any worker is active.
  void run_supersteps() {
    while (true) {
      long active = 0;
      for (const auto& id : own_) {
        if (!vertex_active_map[id]) continue;
        ++active;
        const auto& value = vertex_val_map[id];
        for (const auto& [neighbor, weight] : vertex_adj_edge_val_map[id]) compute(neighbor, weight, value);
      }
      pt->get_comm().allreduce(active);
      if (active == 0) break;
      pt->paracel_sync();
      vote_to_halt();
      pt->paracel_sync();
    }
  }

  /// <output>/<prefix><rank>: id, tab, value.
  void dump_result(const std::string& prefix) { pt->paracel_dump_dict(vertex_val_map, prefix); }

 protected:
  paralg* pt = nullptr;
  paracel::digraph<std::string> grp;
  std::unordered_map<std::string, VertexVal> vertex_val_map;
  std::unordered_map<std::string, std::unordered_map<std::string, double>> vertex_adj_edge_val_map;
  std::unordered_map<std::string, bool> vertex_active_map;

 private:
  vertex(Comm comm, std::string server_info, std::string input, std::string output, parser_type parser)
      : pt(new paralg(server_info, std::move(comm), output)) {
    pt->paracel_load_as_graph(grp, input, parser, "fmap");
    std::vector<std::string> others;
    for (const auto& id : grp.vertex_bag()) (grp.outdegree(id) > 0 ? own_ : others).push_back(id);
    const auto more = pregel_compat::vertices_without_edges_out(pt->get_comm(), own_, others);
    own_.insert(own_.end(), more.begin(), more.end());
    std::sort(own_.begin(), own_.end());
  }

  void begin() {
    std::unordered_map<std::string, MsgVal> states;
    for (const auto& id : own_) {
      const auto edges = grp.adjacent(id);
      vertex_adj_edge_val_map[id] = {edges.begin(), edges.end()};
      vertex_active_map[id] = true;
      if constexpr (std::is_convertible_v<VertexVal, MsgVal>) states.emplace(id, vertex_val_map[id]);
    }
    if (!states.empty()) pt->paracel_write_multi(states);
    pt->paracel_sync();
  }

  std::vector<std::string> own_;  // ascending
};

}  // namespace paracel::pregel
