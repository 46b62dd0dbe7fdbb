// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/graph_part.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/text_number.hpp"
#include "load/entry_reader.hpp"
#include "load/exchange.hpp"
#include "load/numbering.hpp"
#include "load/sparse_builder.hpp"
#include "load/together.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

/// Numbers outside [low, high), each once, ascending.
void add_foreign(const std::vector<std::uint64_t>& numbers, std::uint64_t low, std::uint64_t high,
                 std::vector<std::uint64_t>& to) {
  for (const auto n : numbers) {
    if (n < low || n >= high) to.push_back(n);
  }
  std::ranges::sort(to);
  to.erase(std::ranges::unique(to).begin(), to.end());
}

}  // namespace

std::size_t graph_part::owner(std::uint64_t number) const { return owner_of(first, number); }

graph_part load_graph(Comm comm, const std::vector<std::string>& files, const graph_options& options) {
  auto wanted = options.entries;
  if (!options.weighted && wanted.values != entry_options::value_rule::need)
    wanted.values = entry_options::value_rule::ignore;
  auto entries = read_entries(comm, files, wanted, options.weighted, true, !options.undirected);
  std::vector<std::uint64_t> weight(entries.rows.size(), 1);
  for (const auto v : entries.row) ++weight[v];
  if (options.undirected || options.incoming) {
    for (const auto v : entries.column) ++weight[v];
  }
  auto vertices = number_ids(comm, entries.rows.ids(), weight);

  graph_part out;
  out.first = vertices.first;
  out.rank = comm.get_rank();
  out.directed = !options.undirected;
  out.ids = std::move(vertices.own);
  entry_sender sender(comm, out.first);
  entry_sender::stream stream;
  stream.row = entries.row;
  stream.column = entries.column;
  stream.value = entries.value;
  stream.valued = options.weighted;
  stream.row_number = stream.column_number = vertices.number;
  stream.both_ways = options.undirected;
  stream.self_loops = options.self_loops;
  const bool incoming = options.incoming && !options.undirected;
  numbered_rows built[2];
  const auto build = [&](numbered_rows& to) {
    const auto loose = sender.send(stream);
    together(comm, [&] {
      if (const auto twice = build_rows(out.own(), loose, wanted.duplicates, to))
        throw data_error(files[0] + ": found two edges from " + shown(out.ids.text(twice->first)) + " to the same vertex");
    });
  };
  build(built[0]);
  if (incoming) {
    std::swap(stream.row, stream.column);
    build(built[1]);
  }
  entries = {};

  const auto low = out.first[out.rank];
  const auto high = out.first[out.rank + 1];
  add_foreign(built[0].column, low, high, out.ghosts);
  add_foreign(built[1].column, low, high, out.ghosts);
  const auto make = [&](numbered_rows& from, adjacency& to) {
    to.begin = std::move(from.begin);
    to.weight = std::move(from.value);
    to.target.reserve(from.column.size());
    for (const auto n : from.column) {
      const auto local = n >= low && n < high
                             ? n - low
                             : out.own() + static_cast<std::uint64_t>(std::ranges::lower_bound(out.ghosts, n) -
                                                                      out.ghosts.begin());
      to.target.push_back(static_cast<std::uint32_t>(local));
    }
  };
  std::int64_t edges = 0;
  for (std::size_t v = 0; v < out.own(); ++v) {
    for (auto k = built[0].begin[v]; k < built[0].begin[v + 1]; ++k)
      edges += out.directed || built[0].column[k] >= low + v ? 1 : 0;
  }
  comm.allreduce(edges);
  out.edges_total = static_cast<std::uint64_t>(edges);
  make(built[0], out.out);
  if (incoming) make(built[1], out.in);
  if (options.incoming && options.undirected) out.in = out.out;
  return out;
}

halo::halo(Comm comm, const graph_part& graph) : comm_(std::move(comm)), shared_(comm_.get_size()) {
  std::vector<byte_vector> wanted(comm_.get_size());
  for (std::size_t w = 0; w <= comm_.get_size(); ++w) {
    ghost_first_.push_back(static_cast<std::size_t>(std::ranges::lower_bound(graph.ghosts, graph.first[w]) -
                                                    graph.ghosts.begin()));
    if (w == 0) continue;
    for (auto g = ghost_first_[w - 1]; g < ghost_first_[w]; ++g) append_raw(wanted[w - 1], graph.ghosts[g]);
  }
  const auto got = exchange_blocks(comm_, wanted);
  for (std::size_t w = 0; w < got.size(); ++w) {
    for (const auto n : read_raw<std::uint64_t>(got[w]))
      shared_[w].push_back(static_cast<std::uint32_t>(n - graph.first[graph.rank]));
  }
}

}  // namespace paracel
