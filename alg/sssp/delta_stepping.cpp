// SPDX-License-Identifier: BSD-3-Clause
#include "delta_stepping.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <paracel/exchange.hpp>

namespace paracel::alg {

namespace {

// Width of a bucket in mean weights divided by the root mean square degree (README.md). That degree is several times
// the mean where few vertices have most of the edges, which should not be relaxed for a distance that is not final.
constexpr double width_factor = 2;
// But a star with a million edges should not have a thousand buckets.
constexpr double most_times_mean = 16;
// How many edges and vertices of a bucket ahead memory is prefetched: it is accessed in no order.
constexpr std::uint64_t edges_ahead = 8;
constexpr std::size_t vertices_ahead = 4;

}  // namespace

void distance_buckets::take(std::uint64_t bucket, std::vector<std::uint32_t>& to) {
  to.clear();
  if (bucket > first_) {
    first_ = bucket;
    std::erase_if(far_, [&](const far_entry& e) {
      if (e.bucket >= first_ + near_.size()) return false;
      near_[e.bucket % near_.size()].push_back(e.vertex);
      ++in_near_;
      return true;
    });
  }
  to.swap(near_[bucket % near_.size()]);
  in_near_ -= to.size();
}

delta_stepping::delta_stepping(Comm comm, const distributed_graph& graph, std::uint64_t source, double delta)
    : comm_(std::move(comm)),
      graph_(graph),
      borders_(comm_, graph),
      sender_(comm_, graph, borders_),
      delta_(delta),
      distance_(graph.own() + graph.ghosts.size(), std::numeric_limits<double>::infinity()) {
  if (delta_ <= 0) {
    std::vector<double> sums(3);  // weights, degrees and their squares
    for (std::size_t e = 0; e < graph.out.target.size(); ++e) sums[0] += graph.out.weight_at(e);
    sums[1] = static_cast<double>(graph.out.target.size());
    for (std::size_t v = 0; v < graph.own(); ++v) {
      const auto d = static_cast<double>(graph.out.degree(v));
      sums[2] += d * d;
    }
    if (comm_.get_size() > 1) comm_.allreduce(sums);
    const auto vertices = static_cast<double>(std::max<std::uint64_t>(graph.vertices_total(), 1));
    const auto degree = std::min(std::sqrt(sums[2] / vertices), most_times_mean * sums[1] / vertices);
    delta_ = width_factor * sums[0] / std::max(sums[1], 1.0) / std::max(degree, width_factor);
  }
  // All distances are 0 if all weights are; a delta below the least normal number has no inverse.
  buckets_per_unit_ = delta_ >= std::numeric_limits<double>::min() ? 1 / delta_ : 1;
  const auto first = graph.first[graph.rank];
  if (source >= first && source - first < graph.own()) {
    distance_[source - first] = 0;
    buckets_.put(static_cast<std::uint32_t>(source - first), 0);
  }
}

/// Prefetches what relax() needs of the vertices that follow place i of now_.
void delta_stepping::prefetch_after(std::size_t i) const {
  const auto& out = graph_.out;
  if (i + 2 * vertices_ahead < now_.size()) {
    const auto v = now_[i + 2 * vertices_ahead];
    __builtin_prefetch(&out.begin[v]);
    __builtin_prefetch(&distance_[v]);
  }
  if (i + vertices_ahead < now_.size()) {
    const auto e = out.begin[now_[i + vertices_ahead]];
    __builtin_prefetch(out.target.data() + e);
    if (!out.weight.empty()) __builtin_prefetch(out.weight.data() + e);
  }
}

void delta_stepping::relax(std::uint32_t v) {
  const auto own = graph_.own();
  const auto d = distance_[v];
  const auto& out = graph_.out;
  const auto end = out.begin[v + 1];
  for (auto e = out.begin[v]; e < end; ++e) {
    if (e + edges_ahead < end) __builtin_prefetch(&distance_[out.target[e + edges_ahead]]);
    const auto t = out.target[e];
    const auto through = d + out.weight_at(e);
    if (through >= distance_[t]) continue;
    distance_[t] = through;
    if (t < own) {
      buckets_.put(t, bucket_of(through));
    } else {
      sender_.mark(t - own);
      first_sent_ = std::min(first_sent_, bucket_of(through));
    }
  }
}

void delta_stepping::step() {
  if (done()) return;
  struct head {
    std::uint64_t next = distance_buckets::none, visited = 0;
  } mine;
  first_sent_ = distance_buckets::none;
  for (buckets_.take(bucket_, now_); !now_.empty(); buckets_.take(bucket_, now_)) {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      prefetch_after(i);
      const auto v = now_[i];
      if (bucket_of(distance_[v]) < bucket_) continue;  // it was in an earlier bucket, too
      relax(v);
      ++mine.visited;
    }
  }
  const auto stale = [&](std::uint32_t v, std::uint64_t k) { return bucket_of(distance_[v]) < k; };
  mine.next = std::min(buckets_.next(bucket_, stale), first_sent_);
  const auto own = graph_.own();
  const auto heads = sender_.send(
      mine, [&](std::size_t g) { return distance_[own + g]; },
      [&](std::uint32_t v, double through) {
        if (through >= distance_[v]) return;
        distance_[v] = through;
        buckets_.put(v, bucket_of(through));
      });
  bucket_ = distance_buckets::none;
  visited_ = 0;
  for (const auto& h : heads) {
    bucket_ = std::min(bucket_, h.next);
    visited_ += h.visited;
  }
  ++superstep_;
}

std::vector<double> delta_stepping::take_values() {
  distance_.resize(graph_.own());
  return std::move(distance_);
}

void delta_stepping::save(byte_vector& state) const {
  std::vector<std::uint32_t> waiting;
  buckets_.each([&](std::uint32_t v) {
    if (bucket_of(distance_[v]) >= bucket_) waiting.push_back(v);
  });
  put_fields(state, superstep_, visited_, bucket_, static_cast<std::uint64_t>(waiting.size()));
  put_bytes(state, waiting.data(), waiting.size());
  put_bytes(state, distance_.data(), distance_.size());
}

void delta_stepping::restore(byte_reader& in) {
  superstep_ = in.get<std::uint64_t>();
  visited_ = in.get<std::uint64_t>();
  bucket_ = in.get<std::uint64_t>();
  const auto n = in.get<std::uint64_t>();
  std::vector<std::uint32_t> waiting;
  in.get(waiting, n);
  in.get(distance_, distance_.size());
  buckets_ = distance_buckets();
  for (const auto v : waiting) buckets_.put(v, bucket_of(distance_[v]));
}

}  // namespace paracel::alg
