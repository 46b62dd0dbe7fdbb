// SPDX-License-Identifier: BSD-3-Clause
#include "level_search.hpp"

#include <algorithm>

#include <paracel/exchange.hpp>

namespace paracel::alg {

namespace {

// Beamer et al., section 5: bottom-up pays when the frontier has more than a 15th of the unexplored edges, until it has
// fewer than an 18th of the vertices.
constexpr std::uint64_t bottom_up_share = 15;
constexpr std::uint64_t top_down_share = 18;
// A frontier of more than 1/64 of the own vertices is visited in ascending order, by scanning a bitmap, so that edges
// and targets are accessed in order. On an R-MAT graph that is twice as fast as the order of discovery.
constexpr std::size_t order_share = 64;

}  // namespace

level_search::level_search(Comm comm, const distributed_graph& graph, std::uint64_t source)
    : comm_(std::move(comm)),
      graph_(graph),
      in_(!graph.directed                                     ? &graph.out
          : graph.in.rows() == graph.own() && graph.own() > 0 ? &graph.in
                                                              : nullptr),
      borders_(comm_, graph),
      sender_(comm_, graph, borders_),
      levels_(graph.own(), unreached),
      reached_(graph.own() + graph.ghosts.size()),
      in_frontier_(graph.own() + graph.ghosts.size()) {
  const auto first = graph.first[graph.rank];
  if (source >= first && source - first < graph.own()) {
    const auto v = static_cast<std::uint32_t>(source - first);
    levels_[v] = 0;
    reached_.add(v);
    frontier_.push_back(v);
  }
  std::int64_t most = 0;
  for (std::size_t v = 0; v < graph.own(); ++v) most = std::max(most, static_cast<std::int64_t>(graph.out.degree(v)));
  // A worker without vertices cannot tell whether incoming edges are loaded, so the workers decide together whether all
  // may search bottom-up.
  std::vector<std::int64_t> sums{static_cast<std::int64_t>(graph.out.target.size()),
                                 graph.own() > 0 && in_ == nullptr ? 1 : 0};
  if (comm_.get_size() > 1) {
    comm_.allreduce(sums);
    comm_.allreduce(most, reduce_op::max);
  }
  unexplored_ = static_cast<std::uint64_t>(sums[0]);
  most_edges_ = static_cast<std::uint64_t>(most);
  if (sums[1] > 0) in_ = nullptr;
  else if (in_ == nullptr) in_ = &graph.in;  // empty
}

void level_search::step() {
  if (done_) return;
  found_.clear();
  if (bottom_up_) {
    bottom_up();
  } else {
    top_down();
  }
}

/// The vertices found become the frontier.
void level_search::begin_next() {
  frontier_.swap(found_);
  ++depth_;
  if (bottom_up_ || frontier_.size() * order_share < graph_.own()) return;
  in_frontier_.clear();
  for (const auto v : frontier_) in_frontier_.add(v);
  frontier_.clear();
  in_frontier_.each(0, graph_.own(), [&](std::size_t v) { frontier_.push_back(static_cast<std::uint32_t>(v)); });
}

void level_search::top_down() {
  struct head {
    std::uint64_t visited = 0, edges = 0, found = 0;
  } mine;
  const auto own = static_cast<std::uint32_t>(graph_.own());
  for (const auto v : frontier_) {
    const auto targets = graph_.out.of(v);
    mine.edges += targets.size();
    for (const auto t : targets) {
      if (reached_.has(t)) continue;
      if (t < own) {
        find(t);
      } else {
        reached_.add(t);
        sender_.mark(t - own);
      }
    }
  }
  mine.visited = frontier_.size();
  mine.found = found_.size() + sender_.marks();
  const auto heads = sender_.send(
      mine, [](std::size_t) { return no_value{}; },
      [&](std::uint32_t v, no_value) {
        if (!reached_.has(v)) find(v);
      });
  head all;
  for (const auto& h : heads) {
    all.visited += h.visited;
    all.edges += h.edges;
    all.found += h.found;
  }
  visited_ = all.visited;
  unexplored_ -= std::min(all.edges, unexplored_);
  begin_next();
  choose_direction(all.found);
}

/// Sets in_frontier_, including the bits of ghosts.
void level_search::tell_frontier() {
  const auto own = graph_.own();
  in_frontier_.clear();
  for (const auto v : frontier_) in_frontier_.add(v);
  if (comm_.get_size() == 1) return;
  std::vector<byte_vector> blocks(comm_.get_size());
  for (std::size_t w = 0; w < blocks.size(); ++w) {
    const auto shared = borders_.shared_with(w);
    blocks[w].resize(exchange_room + (shared.size() + 7) / 8);
    for (std::size_t k = 0; k < shared.size(); ++k)
      if (in_frontier_.has(shared[k])) blocks[w][exchange_room + k / 8] |= static_cast<std::byte>(1U << (k % 8));
  }
  const auto got = exchange_blocks(comm_, blocks);
  for (std::size_t w = 0; w < got.size(); ++w) {
    const auto first = own + borders_.ghost_first(w), last = own + borders_.ghost_first(w + 1);
    for (auto g = first; g < last; ++g) {
      const auto k = g - first;
      if ((std::to_integer<unsigned>(got[w][exchange_room + k / 8]) >> (k % 8) & 1U) == 0) continue;
      in_frontier_.add(g);
      reached_.add(g);
    }
  }
}

void level_search::bottom_up() {
  ++bottom_up_steps_;
  tell_frontier();
  reached_.each_other(0, graph_.own(), [&](std::size_t v) {
    for (const auto u : in_->of(v)) {
      if (!in_frontier_.has(u)) continue;
      find(static_cast<std::uint32_t>(v));
      break;
    }
  });
  visited_ = frontier_totals_.vertices;
  unexplored_ -= std::min(frontier_totals_.edges, unexplored_);
  begin_next();
  choose_direction(~std::uint64_t{0});
}

/// `found`: at least the number of vertices in the frontier.
void level_search::choose_direction(std::uint64_t found) {
  done_ = found == 0;
  if (done_ || in_ == nullptr) return;
  if (!bottom_up_ && static_cast<double>(found) * static_cast<double>(most_edges_) * bottom_up_share <
                         static_cast<double>(unexplored_))
    return;  // too few, whatever their degrees are
  std::vector<std::int64_t> sums{static_cast<std::int64_t>(frontier_.size()), 0};
  for (const auto v : frontier_) sums[1] += static_cast<std::int64_t>(graph_.out.degree(v));
  if (comm_.get_size() > 1) comm_.allreduce(sums);
  frontier_totals_ = {static_cast<std::uint64_t>(sums[0]), static_cast<std::uint64_t>(sums[1])};
  done_ = frontier_totals_.vertices == 0;
  const bool grows = frontier_totals_.vertices > visited_;
  if (bottom_up_) {
    bottom_up_ = grows || frontier_totals_.vertices * top_down_share >= graph_.vertices_total();
  } else {
    bottom_up_ = grows && frontier_totals_.edges * bottom_up_share > unexplored_;
  }
}

void level_search::save(byte_vector& state) const {
  put_fields(state, std::uint64_t{depth_}, std::uint64_t{bottom_up_steps_}, std::uint64_t{bottom_up_ ? 1U : 0U},
             std::uint64_t{done_ ? 1U : 0U}, frontier_totals_, visited_, unexplored_);
  put_bytes(state, levels_.data(), levels_.size());
}

void level_search::restore(byte_reader& in) {
  depth_ = static_cast<std::uint32_t>(in.get<std::uint64_t>());
  bottom_up_steps_ = static_cast<std::uint32_t>(in.get<std::uint64_t>());
  bottom_up_ = in.get<std::uint64_t>() != 0;
  done_ = in.get<std::uint64_t>() != 0;
  frontier_totals_ = in.get<totals>();
  visited_ = in.get<std::uint64_t>();
  unexplored_ = in.get<std::uint64_t>();
  in.get(levels_, graph_.own());
  reached_.clear();  // ghosts found before are reported to their owners again
  frontier_.clear();
  for (std::size_t v = 0; v < levels_.size(); ++v) {
    if (levels_[v] == unreached) continue;
    reached_.add(v);
    if (levels_[v] == depth_) frontier_.push_back(static_cast<std::uint32_t>(v));
  }
}

}  // namespace paracel::alg
