// SPDX-License-Identifier: BSD-3-Clause
//
// What the graph algorithms share: the keys that describe the graph, reading it, and writing a value for each vertex.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/npy.hpp"
#include "alg/common/output/result_keys.hpp"
#include "graph_search.hpp"

namespace paracel::alg {

struct graph_settings {
  void keys(key_list& k);
  /// `checkpoint_every` and `resume`, for vertex programs.
  void checkpoint_keys(key_list& k);

  std::vector<std::string> input;
  std::string output;
  std::vector<std::string> vertices;  ///< files that name all vertices; empty: the vertices of the edges
  entry_options::id_kind ids = entry_options::id_kind::automatic;
  entry_keys entries;
  bool dump = true;  ///< write result files, not only the summary
  result_format format = result_format::text;
  load_cache_options cache;
  std::uint64_t checkpoint_every = 0;
  bool resume = false;

  /// The caller adds what its algorithm requires of the graph.
  [[nodiscard]] graph_options load_options() const;
  /// The same for those that need only who is joined to whom: values are ignored, self-loops are left out.
  [[nodiscard]] graph_options load_topology() const;
  [[nodiscard]] std::string checkpoint_folder() const { return output + "/checkpoint"; }
  [[nodiscard]] search_options search(std::function<void(std::uint64_t, std::uint64_t)> watch) const {
    return {.checkpoint_folder = checkpoint_folder(),
            .checkpoint_every = checkpoint_every,
            .resume = resume,
            .watch = std::move(watch)};
  }
};

/// A program that reads a graph and writes values of its vertices: `solve` is all that is left to write.
template <class Settings>
class graph_program : public paralg {
 public:
  using settings_type = Settings;
  graph_program(Comm comm, const std::string& server_info, const Settings& settings)
      : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}

 protected:
  Settings settings_;
};

/// totals[v] of own vertex v: the sum of amounts[u] over all vertices u of all workers with labels[u] == number of v.
/// Exact. A collective. Cost: 16 bytes for each distinct label owned by another worker.
std::vector<std::uint64_t> label_totals(Comm comm, const distributed_graph& graph,
                                        std::span<const std::uint64_t> labels,
                                        std::span<const std::uint64_t> amounts = {});

/// Loads the graph. Throws: data_error, also when it has no vertex. A collective.
distributed_graph load_graph_input(Comm comm, const graph_settings& settings, const graph_options& options);

/// The number of the vertex with this id. A collective. Throws: config_error that begins with `place` on every worker
/// when there is none.
std::uint64_t find_vertex(Comm comm, const distributed_graph& graph, const std::string& id, const std::string& place);

/// Summary of a partition of the vertices into groups.
struct group_summary {
  std::uint64_t groups = 0;
  std::uint64_t largest = 0;  ///< vertices
};
group_summary summary_of_labels(Comm comm, const distributed_graph& graph, std::span<const std::uint64_t> labels);

/// Ids of arbitrary vertices, in the order of `numbers`. A collective. Cost: each distinct number is sent once, and its
/// id back.
id_list ids_of_numbers(Comm comm, const distributed_graph& graph, std::span<const std::uint64_t> numbers);

namespace graph_detail {

inline void append_id(std::string& out, const id_list& ids, std::size_t i) {
  if (ids.numeric()) {
    paracel::append_text(out, ids.number(i));
  } else {
    out += ids.name(i);
  }
}

}  // namespace graph_detail

/// Writes a file <output>/<what>_<rank> (or one <what>.txt for all workers) with a line for each of these vertices: id,
/// tab, value; or, with "format": "npy", arrays and model.json (see npy.hpp). Every worker must call it.
template <npy_number T>
void write_vertex_values(paralg& job, const graph_settings& settings, const id_list& ids, const std::string& algorithm,
                         const std::string& what, std::span<const T> values) {
  if (!settings.dump) return;
  if (settings.format == result_format::npy) {
    model_writer model(job, algorithm, settings.format);
    model.allow_infinity();
    model.add_rows<T>(what, values, {}, &ids);
    model.finish();
    return;
  }
  job.paracel_dump_pieces(what + "_", [&, v = std::size_t{0}](std::string& text) mutable {
    if (v == ids.size()) return false;
    graph_detail::append_id(text, ids, v);
    text += '\t';
    append_text(text, values[v++]);
    text += '\n';
    return true;
  });
}
/// The same for all own vertices.
template <npy_number T>
void write_vertex_values(paralg& job, const graph_settings& settings, const distributed_graph& graph,
                         const std::string& algorithm, const std::string& what, std::span<const T> values) {
  write_vertex_values<T>(job, settings, graph.ids, algorithm, what, values);
}

/// The same for values that are vertices, written as their ids. `numbers`: of those vertices. In npy format: the ids if
/// the graph's ids are numbers, otherwise vertex numbers in the order of the names.
void write_vertex_labels(paralg& job, const graph_settings& settings, const distributed_graph& graph,
                         const std::string& algorithm, const std::string& what, std::span<const std::uint64_t> numbers);

}  // namespace paracel::alg
