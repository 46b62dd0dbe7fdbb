// SPDX-License-Identifier: BSD-3-Clause
#include "graph_base.hpp"

#include <algorithm>
#include <unordered_map>

#include <paracel/exchange.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/load_cache_keys.hpp"

namespace paracel::alg {

void graph_settings::keys(key_list& k) {
  using kind = entry_options::id_kind;
  k.files("input", input, "edges, one per line: source, target and optionally a weight").required();
  k.output_folder("output", output, "folder of the results").required();
  k.files("vertices", vertices, "files whose first field names the vertices; default: the vertices of the edges");
  k("ids", ids, "type of the vertex ids; automatic: numbers if all of them are",
    {{"automatic", kind::automatic}, {"number", kind::number}, {"name", kind::name}});
  entries.keys(k, "source, target and weight");
  k("dump", dump, "write the value of each vertex; false: only the summary");
  format_key(k, format, "format of the values: text, or npy with a manifest");
  cache_keys(k, cache);
  k.output_files();
}

void graph_settings::checkpoint_keys(key_list& k) {
  k("checkpoint_every", checkpoint_every, "supersteps between two checkpoints in <output>/checkpoint; 0: none")
      .at_least(0);
  k("resume", resume, "resume from the newest checkpoint, if there is one");
}

graph_options graph_settings::load_options() const {
  graph_options o;
  entries.apply(o.entries);
  o.entries.rows_also = vertices;
  o.entries.cache = cache;
  o.entries.ids = ids;
  return o;
}

graph_options graph_settings::load_topology() const {
  auto o = load_options();
  o.entries.values = entry_options::value_rule::ignore;
  o.self_loops = false;
  return o;
}

std::vector<std::uint64_t> label_totals(Comm comm, const distributed_graph& graph,
                                        std::span<const std::uint64_t> labels, std::span<const std::uint64_t> amounts) {
  const auto own_first = graph.first[graph.rank];
  std::vector<std::uint64_t> totals(graph.own());
  std::unordered_map<std::uint64_t, std::uint64_t> others;
  // Consecutive neighbours often have the same label, so the last entry is cached.
  std::uint64_t last = ~std::uint64_t{0};
  std::uint64_t* entry = nullptr;
  for (std::size_t v = 0; v < graph.own(); ++v) {
    const auto amount = amounts.empty() ? 1 : amounts[v];
    if (labels[v] >= own_first && labels[v] - own_first < totals.size()) {
      totals[labels[v] - own_first] += amount;
      continue;
    }
    if (labels[v] != last || entry == nullptr) {
      last = labels[v];
      entry = &others[last];
    }
    *entry += amount;
  }
  std::vector<byte_vector> blocks(comm.get_size());
  for (auto& b : blocks) put_bytes(b, std::uint64_t{0});
  for (const auto& [label, amount] : others) {
    const auto w = graph.owner(label);
    put_bytes(blocks[w], label - graph.first[w]);
    put_bytes(blocks[w], amount);
  }
  for (const auto& block : exchange_blocks(comm, blocks)) {
    byte_reader in(block, exchange_room);
    while (!in.empty()) {
      const auto v = in.get<std::uint64_t>();
      totals[v] += in.get<std::uint64_t>();
    }
  }
  return totals;
}

group_summary summary_of_labels(Comm comm, const distributed_graph& graph, std::span<const std::uint64_t> labels) {
  std::int64_t groups = 0, largest = 0;
  for (const auto n : label_totals(comm, graph, labels)) {
    groups += n > 0 ? 1 : 0;
    largest = std::max(largest, static_cast<std::int64_t>(n));
  }
  comm.allreduce(groups);
  comm.allreduce(largest, reduce_op::max);
  return {static_cast<std::uint64_t>(groups), static_cast<std::uint64_t>(largest)};
}

distributed_graph load_graph_input(Comm comm, const graph_settings& settings, const graph_options& options) {
  auto graph = load_graph(std::move(comm), settings.input, options);
  if (graph.vertices_total() == 0)
    throw data_error(settings.input.front() + ":1:1: found no edge, want lines `source target`" +
                     (settings.vertices.empty() ? "" : " or vertices in " + settings.vertices.front()));
  return graph;
}

resumable_loop& keep_size(resumable_loop& loop, const distributed_graph& graph) {
  const auto size = [&graph] {
    return std::vector<std::uint64_t>{graph.own(), graph.ghosts.size(), graph.vertices_total(), graph.edges_total};
  };
  return loop.keep_with([size](saved_state& to, const std::string& prefix) { to.put(prefix + "graph", size()); },
                        [size](const saved_state& from, const std::string& prefix) {
                          std::vector<std::uint64_t> then;
                          if (!from.get(prefix + "graph", then) || then != size())
                            throw error("the checkpoint is of another graph");
                        });
}

std::uint64_t find_vertex(Comm comm, const distributed_graph& graph, const std::string& id, const std::string& place) {
  std::optional<std::size_t> local;
  if (graph.ids.numeric()) {
    std::uint64_t number = 0;
    if (parse_id(id, number)) local = graph.ids.find(number);
  } else {
    local = graph.ids.find(std::string_view(id));
  }
  std::int64_t found = local ? static_cast<std::int64_t>(graph.number(*local)) : -1;
  comm.allreduce(found, reduce_op::max);
  if (found < 0) throw config_error(place + ": found \"" + id + "\", want the id of a vertex of the graph");
  return static_cast<std::uint64_t>(found);
}

id_list ids_of_numbers(Comm comm, const distributed_graph& graph, std::span<const std::uint64_t> numbers) {
  const auto size = comm.get_size();
  const auto rank = comm.get_rank();
  // Each distinct number is requested once.
  std::vector<std::uint64_t> wanted;
  const auto own_first = graph.first[rank], own_last = graph.first[rank + 1];
  for (const auto n : numbers)
    if (n < own_first || n >= own_last) wanted.push_back(n);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<byte_vector> questions(size);
  for (auto& q : questions) put_bytes(q, std::uint64_t{0});
  for (const auto n : wanted) put_bytes(questions[graph.owner(n)], n);
  const auto asked = exchange_blocks(comm, questions);
  std::vector<byte_vector> answers(size);
  for (std::size_t w = 0; w < size; ++w) {
    put_bytes(answers[w], std::uint64_t{0});
    byte_reader in(asked[w], exchange_room);
    while (!in.empty()) {
      const auto v = in.get<std::uint64_t>() - own_first;
      if (graph.ids.numeric()) {
        put_bytes(answers[w], graph.ids.number(v));
      } else {
        const auto name = graph.ids.name(v);
        put_bytes(answers[w], static_cast<std::uint32_t>(name.size()));
        put_bytes(answers[w], name.data(), name.size());
      }
    }
  }
  const auto told = exchange_blocks(comm, answers);
  auto others = id_list::empty(graph.ids.numeric());
  for (const auto& block : told) {  // in rank order, which is the order of `wanted`
    byte_reader in(block, exchange_room);
    while (!in.empty()) {
      if (graph.ids.numeric()) {
        others.push_back(in.get<std::uint64_t>());
      } else {
        const auto bytes = in.get<std::uint32_t>();
        others.push_back(std::string_view(reinterpret_cast<const char*>(in.take(bytes)), bytes));
      }
    }
  }
  auto ids = id_list::empty(graph.ids.numeric());
  ids.reserve(numbers.size());
  for (const auto n : numbers) {
    const bool mine = n >= own_first && n < own_last;
    const auto& from = mine ? graph.ids : others;
    const auto at = mine ? static_cast<std::size_t>(n - own_first)
                         : static_cast<std::size_t>(std::lower_bound(wanted.begin(), wanted.end(), n) - wanted.begin());
    if (from.numeric()) {
      ids.push_back(from.number(at));
    } else {
      ids.push_back(from.name(at));
    }
  }
  return ids;
}

void write_vertex_labels(paralg& job, const graph_settings& settings, const distributed_graph& graph,
                         const std::string& algorithm, const std::string& what,
                         std::span<const std::uint64_t> numbers) {
  if (!settings.dump) return;
  if (settings.format == result_format::npy && !graph.ids.numeric())
    return write_vertex_values<std::uint64_t>(job, settings, graph, algorithm, what, numbers);
  const auto ids = ids_of_numbers(job.get_comm(), graph, numbers);
  if (settings.format == result_format::npy)
    return write_vertex_values<std::uint64_t>(job, settings, graph, algorithm, what, ids.numbers());
  job.paracel_dump_pieces(what + "_", [&, v = std::size_t{0}](std::string& text) mutable {
    if (v == graph.own()) return false;
    graph_detail::append_id(text, graph.ids, v);
    text += '\t';
    graph_detail::append_id(text, ids, v++);
    text += '\n';
    return true;
  });
}

}  // namespace paracel::alg
