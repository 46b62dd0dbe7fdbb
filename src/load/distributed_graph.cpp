// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/distributed_graph.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "load/chunked_alltoall.hpp"
#include "load/csr_builder.hpp"
#include "load/duplicate_check.hpp"
#include "load/format/entry_reader.hpp"
#include "load/ids/global_ids.hpp"
#include "load/ids/rank_bitmap.hpp"
#include "load/load_cache.hpp"
#include "paracel/error.hpp"
#include "paracel/exchange.hpp"

namespace paracel {

std::size_t distributed_graph::owner(std::uint64_t number) const { return owner_of(first, number); }

namespace {

/// Builds the graph from its entries, with column numbers of this type.
template <class Column>
void build_graph(Comm& comm, const std::vector<std::string>& files, const graph_options& options,
                 chunked_vector& entries, index_numbers& numbers, distributed_graph& out) {
  const bool both = options.incoming && !options.undirected;
  build_options build{.both_ways = options.undirected && !out.once,
                      .once = out.once,
                      .self_loops = options.self_loops,
                      .keep = both,
                      .duplicates = options.entries.duplicates};
  duplicate_entry twice;
  auto leaving = build_rows<Column>(comm, out.first, entries, numbers, numbers, build, twice);
  if (options.entries.duplicates == duplicate_rule::refuse) {
    global_ids vertices;
    vertices.first = out.first;
    vertices.own = out.ids;
    duplicate_check(comm, twice, out.ids, vertices, files, options.entries, entry_role::edges, options.undirected);
  }
  numbered_rows<Column> entering;
  if (both) {
    build.swap = true;
    build.keep = false;
    entering = build_rows<Column>(comm, out.first, entries, numbers, numbers, build, twice);
  }
  const auto low = out.first[out.rank];
  const auto own = out.own();
  std::int64_t edges = 0;
  for (std::size_t v = 0; v < own; ++v) {
    if (!build.both_ways) break;
    for (auto k = leaving.begin[v]; k < leaving.begin[v + 1]; ++k) edges += leaving.column[k] >= low + v ? 1 : 0;
  }
  if (!build.both_ways) edges = static_cast<std::int64_t>(leaving.column.size());
  comm.allreduce(edges);
  out.edges_total = static_cast<std::uint64_t>(edges);

  rank_bitmap ghosts(comm.get_size() == 1 ? 0 : out.vertices_total());
  if (comm.get_size() > 1) {
    for (const auto* part : {&leaving, &entering}) {
      for (const auto n : part->column) ghosts.add(n);
    }
    ghosts.remove(low, low + own);
  }
  ghosts.count();
  if (own + ghosts.size() > std::numeric_limits<std::uint32_t>::max())
    throw error("more than 4294967295 vertices and ghosts on one worker");
  out.ghosts.reserve(ghosts.size());
  ghosts.for_each([&](std::uint64_t n) { out.ghosts.push_back(n); });
  const auto local = [&](std::uint64_t n) { return n - low < own ? n - low : own + ghosts.rank(n); };
  const auto finish = [&](numbered_rows<Column>& from, adjacency& to) {
    to.begin = std::move(from.begin);
    to.weight = std::move(from.value);
    to.target = to_places(std::move(from.column), local, comm.get_size() == 1);
  };
  finish(leaving, out.out);
  if (both) finish(entering, out.in);
  else if (options.incoming) out.in = out.out;
}

/// About how many edges each id of this worker has here, plus 1: for a numbering that balances the workers' edges. Many
/// entries are sampled: increments at random places took a tenth of the loading time. The step is odd, as files may
/// have each edge in both directions, one after the other.
std::vector<std::uint32_t> edges_by_id(local_entries& local, const graph_options& options) {
  constexpr std::size_t counted_all = std::size_t{1} << 18U;
  const std::uint32_t step = local.entries.size() <= counted_all ? 1 : 15;
  const auto& ids = local.rows;
  std::vector<std::uint32_t> weight(ids.ids.size(), 1);
  const auto count = [&](std::uint32_t i) {
    auto& n = weight[ids.place.empty() ? i : ids.place[i]];
    n += n < std::numeric_limits<std::uint32_t>::max() - step ? step : 0;
  };
  local.entries.each_block([&](const chunked_vector::view& b) {
    for (std::size_t k = 0; k < b.size; k += step) {
      count(b.row[k]);
      if (options.undirected || options.incoming) count(b.column[k]);
    }
  });
  return weight;
}

distributed_graph load_text(Comm comm, const std::vector<std::string>& files, const graph_options& options) {
  auto wanted = options.entries;
  if (!options.weighted && wanted.values != entry_options::value_rule::need)
    wanted.values = entry_options::value_rule::ignore;
  auto local =
      read_entries(comm, files, wanted,
                   {.values = options.weighted, .one_dictionary = true, .mirror_symmetric = !options.undirected});
  auto& ids = local.rows;
  std::vector<std::uint32_t> weight;
  if (comm.get_size() > 1) weight = edges_by_id(local, options);
  auto entries = static_cast<std::int64_t>(local.entries.size());
  comm.allreduce(entries);
  auto vertices = number_ids(comm, std::move(ids.ids), std::move(weight));
  index_numbers numbers(std::move(ids.place), vertices);

  distributed_graph out;
  out.first = std::move(vertices.first);
  out.rank = comm.get_rank();
  out.directed = !options.undirected;
  const bool fits = static_cast<std::uint64_t>(entries) <= options.once_limit && !numbers.is_wide;
  const bool limited = options.once_limit != std::numeric_limits<std::uint64_t>::max();
  out.once = options.undirected && options.once && (fits || !limited);
  out.ids = std::move(vertices.own);
  if (numbers.is_wide) build_graph<std::uint64_t>(comm, files, options, local.entries, numbers, out);
  else build_graph<std::uint32_t>(comm, files, options, local.entries, numbers, out);
  return out;
}

}  // namespace

distributed_graph load_graph(Comm comm, const std::vector<std::string>& files, const graph_options& options) {
  const auto text = "weighted " + std::to_string(options.weighted) + " undirected " +
                    std::to_string(options.undirected) + " self_loops " + std::to_string(options.self_loops) +
                    " incoming " + std::to_string(options.incoming) + " once " + std::to_string(options.once) + " " +
                    std::to_string(options.once_limit) + "\n" + text_of_options(options.entries);
  load_cache cache(comm, options.entries.cache, "graph", text, files, options.entries.rows_also);
  distributed_graph graph;
  if (cache.read([&](cache_reader& parts) { distributed_graph::visit_parts(parts, graph); })) return graph;
  graph = load_text(comm, files, options);
  cache.write([&](cache_writer& parts) { distributed_graph::visit_parts(parts, std::as_const(graph)); });
  return graph;
}

halo::halo(Comm comm, const distributed_graph& graph)
    : comm_(std::move(comm)), shared_(comm_.get_size()), blocks_(comm_.get_size()) {
  std::vector<byte_vector> wanted(comm_.get_size(), byte_vector(exchange_room));
  for (std::size_t w = 0; w <= comm_.get_size(); ++w) {
    ghost_first_.push_back(
        static_cast<std::size_t>(std::ranges::lower_bound(graph.ghosts, graph.first[w]) - graph.ghosts.begin()));
    if (w == 0) continue;
    for (auto g = ghost_first_[w - 1]; g < ghost_first_[w]; ++g) put_bytes(wanted[w - 1], graph.ghosts[g]);
  }
  const auto got = exchange_blocks(comm_, wanted, round_bytes);
  for (std::size_t w = 0; w < got.size(); ++w) {
    for (const auto n : byte_reader(got[w], exchange_room).rest<std::uint64_t>())
      shared_[w].push_back(static_cast<std::uint32_t>(n - graph.first[graph.rank]));
  }
}

}  // namespace paracel
