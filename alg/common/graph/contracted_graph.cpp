// SPDX-License-Identifier: BSD-3-Clause
#include "contracted_graph.hpp"

#include <algorithm>
#include <bit>

#include <paracel/exchange.hpp>

namespace paracel::alg {

namespace {

/// A set of integers below n; the i-th smallest has index i.
class ranked_bits {
 public:
  explicit ranked_bits(std::uint64_t n) : words_(n / 64 + 1) {}
  void add(std::uint64_t x) { words_[x / 64] |= std::uint64_t{1} << (x % 64); }
  /// Call it after the last `add`.
  void rank() {
    before_.resize(words_.size());
    std::uint32_t n = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      before_[i] = n;
      n += static_cast<std::uint32_t>(std::popcount(words_[i]));
    }
    size_ = n;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint32_t index(std::uint64_t x) const {
    const auto below = words_[x / 64] & ((std::uint64_t{1} << (x % 64)) - 1);
    return before_[x / 64] + static_cast<std::uint32_t>(std::popcount(below));
  }
  template <class F>
  void each(F&& f) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (auto w = words_[i]; w != 0; w &= w - 1) f(i * 64 + static_cast<std::uint64_t>(std::countr_zero(w)));
  }

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> before_;
  std::size_t size_ = 0;
};

/// Own groups have local indices 0 ... groups - 1; the others follow in the order of their numbers.
struct local_indices {
  std::uint64_t first;
  std::size_t groups;
  const ranked_bits& ghosts;
  [[nodiscard]] std::uint32_t of(std::uint64_t number) const {
    if (number >= first && number - first < groups) return static_cast<std::uint32_t>(number - first);
    return static_cast<std::uint32_t>(groups + ghosts.index(number));
  }
};

adjacency adjacency_of(const std::vector<contracted_edge>& links, const local_indices& local) {
  adjacency a;
  const auto groups = local.groups;
  std::vector<std::uint64_t> at(groups + 1);
  for (const auto& l : links) ++at[l.from + 1];
  for (std::size_t g = 0; g < groups; ++g) at[g + 1] += at[g];
  std::vector<std::uint32_t> targets(links.size());
  auto next = at;
  for (const auto& l : links) targets[next[l.from]++] = local.of(l.to);
  std::vector<std::uint32_t> seen_by(groups + local.ghosts.size(), ~std::uint32_t{0});
  a.begin.assign(1, 0);
  a.begin.reserve(groups + 1);
  for (std::size_t g = 0; g < groups; ++g) {
    for (auto k = at[g]; k < at[g + 1]; ++k) {
      auto& seen = seen_by[targets[k]];
      if (seen == g) continue;
      seen = static_cast<std::uint32_t>(g);
      a.target.push_back(targets[k]);
    }
    a.begin.push_back(a.target.size());
  }
  return a;
}

/// The other workers' edges to groups of this worker, reversed.
std::vector<contracted_edge> reversed(Comm& comm, const distributed_graph& g,
                                      const std::vector<contracted_edge>& links) {
  std::vector<byte_vector> blocks(comm.get_size());
  for (auto& b : blocks) put_bytes(b, std::uint64_t{0});
  for (const auto& l : links) {
    const auto w = g.owner(l.to);
    put_bytes(blocks[w], static_cast<std::uint32_t>(l.to - g.first[w]));
    put_bytes(blocks[w], g.first[g.rank] + l.from);
  }
  std::vector<contracted_edge> turned;
  for (const auto& block : exchange_blocks(comm, blocks)) {
    byte_reader in(block, exchange_room);
    while (!in.empty()) {
      contracted_edge l;
      l.from = in.get<std::uint32_t>();
      l.to = in.get<std::uint64_t>();
      turned.push_back(l);
    }
  }
  return turned;
}

}  // namespace

std::vector<std::uint64_t> number_groups(Comm comm, std::uint64_t groups) {
  std::vector<std::uint64_t> first{0};
  for (const auto n : comm.allgather(groups)) first.push_back(first.back() + n);
  return first;
}

distributed_graph contracted_graph(Comm comm, const std::vector<std::uint64_t>& first,
                                   const std::vector<contracted_edge>& links, edge_rule rule) {
  distributed_graph g;
  g.first = first;
  g.rank = comm.get_rank();
  const auto groups = g.own();
  const auto elsewhere = [&](std::uint64_t number) { return number < first[g.rank] || number >= first[g.rank + 1]; };
  const auto ghosts_of = [&](std::initializer_list<const std::vector<contracted_edge>*> lists) {
    ranked_bits bits(first.back());
    for (const auto* list : lists)
      for (const auto& l : *list)
        if (elsewhere(l.to)) bits.add(l.to);
    bits.rank();
    g.ghosts.clear();
    g.ghosts.reserve(bits.size());
    bits.each([&](std::uint64_t x) { g.ghosts.push_back(x); });
    return bits;
  };
  // Deduplicated first, so that parallel edges are sent only once.
  std::vector<contracted_edge> out, in;
  {
    const auto bits = ghosts_of({&links});
    const auto a = adjacency_of(links, {first[g.rank], groups, bits});
    out.reserve(a.target.size());
    for (std::size_t v = 0; v < groups; ++v)
      for (const auto t : a.of(v)) out.push_back({static_cast<std::uint32_t>(v), g.number(t)});
  }
  if (rule != edge_rule::out_only) in = reversed(comm, g, out);
  if (rule == edge_rule::symmetric) {
    out.insert(out.end(), in.begin(), in.end());
    in.clear();
  }
  const auto bits = ghosts_of({&out, &in});
  const local_indices local{first[g.rank], groups, bits};
  g.out = adjacency_of(out, local);
  if (rule == edge_rule::both_ways) g.in = adjacency_of(in, local);
  auto edges = static_cast<std::int64_t>(g.out.target.size());
  comm.allreduce(edges);
  g.edges_total = static_cast<std::uint64_t>(edges);
  g.directed = rule != edge_rule::symmetric;
  return g;
}

}  // namespace paracel::alg
