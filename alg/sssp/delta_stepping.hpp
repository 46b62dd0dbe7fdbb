// SPDX-License-Identifier: BSD-3-Clause
//
// Shortest paths from one vertex, in buckets of distances.
//
// Bucket k contains the vertices whose tentative distance is in [k delta, (k + 1) delta). A superstep processes one
// bucket, the same on every worker: each worker removes its vertices from it and relaxes their edges, which may put
// them or others into that bucket again, until it is empty; then distances of ghosts that fell are sent to the owners.
// The next bucket is the first that any worker has a vertex in, possibly the same one. A large delta means fewer
// supersteps, but more edges that are relaxed more than once.
//
// A distance is the least, over all paths, of the sum in path order, and bit-identical for any delta and any number of
// workers, because a + w is monotonic in a even when it is rounded.
//
// Source: U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm", J. Algorithms 49, 2003,
// without their distinction of light and heavy edges, which saves relaxing an edge twice, but costs a pass over the
// edges: the choice of S. Beamer, K. Asanovic, D. Patterson, "The GAP benchmark suite", 2015.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/ghost_sender.hpp"

namespace paracel::alg {

/// Own vertices by bucket. Buckets in a window have a list each, those beyond share one.
class distance_buckets {
 public:
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  explicit distance_buckets(std::size_t window = 1024) : near_(window) {}

  void put(std::uint32_t v, std::uint64_t bucket) {
    if (bucket < first_ + near_.size()) {
      near_[bucket % near_.size()].push_back(v);
      ++in_near_;
    } else {
      far_.push_back({bucket, v});
    }
  }
  /// Moves the contents of `bucket` to `to`, which is cleared first. Earlier buckets must be empty, and stay so.
  void take(std::uint64_t bucket, std::vector<std::uint32_t>& to);
  /// The first bucket from `from` on that has a vertex for which stale(vertex, bucket) is false, or none. Drops some of
  /// the stale vertices.
  template <class Stale>
  [[nodiscard]] std::uint64_t next(std::uint64_t from, Stale&& stale) {
    for (auto k = std::max(from, first_); in_near_ > 0 && k < first_ + near_.size(); ++k) {
      auto& bucket = near_[k % near_.size()];
      for (; !bucket.empty() && stale(bucket.back(), k); --in_near_) bucket.pop_back();
      if (!bucket.empty()) return k;
    }
    std::erase_if(far_, [&](const far_entry& e) { return stale(e.vertex, e.bucket); });
    auto least = none;
    for (const auto& e : far_) least = std::min(least, e.bucket);
    return least;
  }
  /// Calls f(vertex) for all.
  template <class F>
  void each(F&& f) const {
    for (const auto& bucket : near_)
      for (const auto v : bucket) f(v);
    for (const auto& entry : far_) f(entry.vertex);
  }

 private:
  struct far_entry {
    std::uint64_t bucket;
    std::uint32_t vertex;
  };
  std::vector<std::vector<std::uint32_t>> near_;  // bucket k at k modulo their number
  std::vector<far_entry> far_;
  std::uint64_t first_ = 0;  // the first bucket of the window
  std::size_t in_near_ = 0;
};

/// Thread-safety: none. Lifetime: the graph must outlive it. Memory: 8 bytes a local vertex, 4 for each one in a
/// bucket.
class delta_stepping {
 public:
  /// The graph has weights of at least 0. `source`: a vertex number. `delta`: the width of a bucket; 0: from the
  /// weights. A collective.
  delta_stepping(Comm comm, const distributed_graph& graph, std::uint64_t source, double delta = 0);

  /// One superstep; nothing if the search is done. A collective.
  /// Cost: one all-to-all with 12 bytes for each ghost whose distance fell.
  void step();
  [[nodiscard]] bool done() const noexcept { return bucket_ == distance_buckets::none; }
  [[nodiscard]] std::uint64_t superstep() const noexcept { return superstep_; }
  /// Vertices whose edges the last superstep relaxed, over all workers, counted as often as it did.
  [[nodiscard]] std::uint64_t visited() const noexcept { return visited_; }
  [[nodiscard]] double delta() const noexcept { return delta_; }

  /// Distances of the own vertices; infinity if not reached.
  [[nodiscard]] std::vector<double> values() const {
    return {distance_.begin(), distance_.begin() + static_cast<std::ptrdiff_t>(graph_.own())};
  }
  /// The same, moved out; the object must not be used afterwards.
  [[nodiscard]] std::vector<double> take_values();

  void save(byte_vector& state) const;
  void restore(byte_reader& in);

 private:
  [[nodiscard]] std::uint64_t bucket_of(double distance) const {
    constexpr double greatest = 0x1p62;  // and all beyond
    const auto k = distance * buckets_per_unit_;
    return k < greatest ? static_cast<std::uint64_t>(k) : std::uint64_t{1} << 62U;
  }
  void prefetch_after(std::size_t i) const;
  void relax(std::uint32_t v);

  Comm comm_;
  const distributed_graph& graph_;
  halo borders_;
  ghost_sender<double> sender_;
  double delta_ = 0;
  double buckets_per_unit_ = 0;
  std::vector<double> distance_;  // of local vertices; of a ghost the least one that was sent to its owner
  distance_buckets buckets_;
  std::vector<std::uint32_t> now_;
  std::uint64_t bucket_ = 0;
  std::uint64_t first_sent_ = 0;  // the least bucket of a ghost in this superstep
  std::uint64_t superstep_ = 0, visited_ = 0;
};

}  // namespace paracel::alg
