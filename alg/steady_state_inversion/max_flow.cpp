// SPDX-License-Identifier: BSD-3-Clause
#include "max_flow.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace paracel::alg {

namespace {

constexpr std::uint32_t unreached = std::numeric_limits<std::uint32_t>::max();

/// The maximum flow from left to right, by blocking flows along shortest paths. Source and sink are implicit: the
/// residual supplies and demands.
class bipartite_flow {
 public:
  bipartite_flow(std::span<const double> supply, std::span<const double> demand,
                 std::span<const std::pair<std::uint32_t, std::uint32_t>> edges)
      : supply_(supply.begin(), supply.end()),
        demand_(demand.begin(), demand.end()),
        flow_(edges.size()),
        tiny_(1e-12 * std::accumulate(supply.begin(), supply.end(), 0.0)) {
    adjacent(edges, supply.size(), true, left_begin_, left_edge_);
    adjacent(edges, demand.size(), false, right_begin_, right_edge_);
    for (const auto& [l, r] : edges) {
      left_of_.push_back(l);
      right_of_.push_back(r);
    }
    while (find_levels()) {
      left_at_ = left_begin_;
      right_at_ = right_begin_;
      for (std::uint32_t l = 0; l < supply_.size(); ++l) {
        while (supply_[l] > tiny_) {
          const double moved = push(l, supply_[l]);
          if (moved <= 0) break;
          supply_[l] -= moved;
        }
      }
    }
  }

  /// The vertices that residual paths connect: backwards from right vertices with unmet demand, or forwards from left
  /// vertices with residual supply.
  void closure(bool backwards, std::vector<std::uint32_t>& left, std::vector<std::uint32_t>& right) const {
    std::vector<bool> left_in(supply_.size());
    std::vector<bool> right_in(demand_.size());
    std::vector<std::uint32_t> left_todo;
    std::vector<std::uint32_t> right_todo;
    const auto take = [](std::vector<bool>& in, std::vector<std::uint32_t>& todo, std::uint32_t v) {
      if (!in[v]) todo.push_back(v);
      in[v] = true;
    };
    for (std::uint32_t v = 0; backwards && v < demand_.size(); ++v) {
      if (demand_[v] > tiny_) take(right_in, right_todo, v);
    }
    for (std::uint32_t v = 0; !backwards && v < supply_.size(); ++v) {
      if (supply_[v] > tiny_) take(left_in, left_todo, v);
    }
    // Backwards, from a right vertex to all its left neighbours and from a left one along its positive flows; forwards,
    // from a left vertex to all its right neighbours and from a right one along its positive flows.
    while (!left_todo.empty() || !right_todo.empty()) {
      if (!left_todo.empty()) {
        const auto l = left_todo.back();
        left_todo.pop_back();
        for (auto k = left_begin_[l]; k < left_begin_[l + 1]; ++k) {
          const auto e = left_edge_[k];
          if (!backwards || flow_[e] > 0) take(right_in, right_todo, right_of_[e]);
        }
      } else {
        const auto r = right_todo.back();
        right_todo.pop_back();
        for (auto k = right_begin_[r]; k < right_begin_[r + 1]; ++k) {
          const auto e = right_edge_[k];
          if (backwards || flow_[e] > 0) take(left_in, left_todo, left_of_[e]);
        }
      }
    }
    for (std::uint32_t v = 0; v < left_in.size(); ++v) {
      if (left_in[v]) left.push_back(v);
    }
    for (std::uint32_t v = 0; v < right_in.size(); ++v) {
      if (right_in[v]) right.push_back(v);
    }
  }

  [[nodiscard]] double lacking() const { return std::accumulate(demand_.begin(), demand_.end(), 0.0); }
  [[nodiscard]] double tiny() const noexcept { return tiny_; }

 private:
  static void adjacent(std::span<const std::pair<std::uint32_t, std::uint32_t>> edges, std::size_t vertices, bool left,
                       std::vector<std::size_t>& begin, std::vector<std::uint32_t>& edge) {
    begin.assign(vertices + 1, 0);
    for (const auto& [l, r] : edges) ++begin[(left ? l : r) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    edge.resize(edges.size());
    auto at = begin;
    for (std::uint32_t e = 0; e < edges.size(); ++e) edge[at[left ? edges[e].first : edges[e].second]++] = e;
  }

  /// Distances from left vertices with residual supply, along edges and against flows; returns whether unmet demand can
  /// be reached.
  bool find_levels() {
    left_level_.assign(supply_.size(), unreached);
    right_level_.assign(demand_.size(), unreached);
    std::vector<std::uint32_t> now;
    for (std::uint32_t l = 0; l < supply_.size(); ++l) {
      if (supply_[l] > tiny_) {
        left_level_[l] = 0;
        now.push_back(l);
      }
    }
    bool found = false;
    for (std::uint32_t level = 0; !now.empty() && !found; level += 2) {
      std::vector<std::uint32_t> rights;
      for (const auto l : now) {
        for (auto k = left_begin_[l]; k < left_begin_[l + 1]; ++k) {
          const auto r = right_of_[left_edge_[k]];
          if (right_level_[r] != unreached) continue;
          right_level_[r] = level + 1;
          rights.push_back(r);
          found = found || demand_[r] > tiny_;
        }
      }
      now.clear();
      for (const auto r : rights) {
        for (auto k = right_begin_[r]; k < right_begin_[r + 1]; ++k) {
          const auto e = right_edge_[k];
          const auto l = left_of_[e];
          if (flow_[e] <= tiny_ || left_level_[l] != unreached) continue;
          left_level_[l] = level + 2;
          now.push_back(l);
        }
      }
    }
    return found;
  }

  /// Moves at most `most` from left vertex `from` along a path of increasing levels to unmet demand; returns the
  /// amount.
  double push(std::uint32_t from, double most) {
    struct step {
      std::uint32_t edge;
      bool forward;
    };
    std::vector<step> path;
    std::uint32_t at = from;
    bool on_left = true;
    for (;;) {
      if (!on_left && demand_[at] > tiny_) {
        double moved = std::min(most, demand_[at]);
        for (const auto& s : path) {
          if (!s.forward) moved = std::min(moved, flow_[s.edge]);
        }
        for (const auto& s : path) flow_[s.edge] += s.forward ? moved : -moved;
        demand_[at] -= moved;
        return moved;
      }
      bool advanced = false;
      if (on_left) {
        for (auto& k = left_at_[at]; k < left_begin_[at + 1]; ++k) {
          const auto e = left_edge_[k];
          if (right_level_[right_of_[e]] != left_level_[at] + 1) continue;
          path.push_back({e, true});
          at = right_of_[e];
          advanced = true;
          break;
        }
      } else {
        for (auto& k = right_at_[at]; k < right_begin_[at + 1]; ++k) {
          const auto e = right_edge_[k];
          if (flow_[e] <= tiny_ || left_level_[left_of_[e]] != right_level_[at] + 1) continue;
          path.push_back({e, false});
          at = left_of_[e];
          advanced = true;
          break;
        }
      }
      if (advanced) {
        on_left = !on_left;
        continue;
      }
      if (path.empty()) return 0;
      // A dead end: backtrack, and skip the edge that led here.
      const auto last = path.back();
      path.pop_back();
      on_left = !on_left;
      at = on_left ? left_of_[last.edge] : right_of_[last.edge];
      ++(on_left ? left_at_ : right_at_)[at];
    }
  }

  std::vector<double> supply_;
  std::vector<double> demand_;
  std::vector<double> flow_;
  double tiny_;
  std::vector<std::uint32_t> left_of_;
  std::vector<std::uint32_t> right_of_;
  std::vector<std::size_t> left_begin_;
  std::vector<std::uint32_t> left_edge_;
  std::vector<std::size_t> right_begin_;
  std::vector<std::uint32_t> right_edge_;
  std::vector<std::uint32_t> left_level_;
  std::vector<std::uint32_t> right_level_;
  std::vector<std::size_t> left_at_;  // the next edge to try in this phase
  std::vector<std::size_t> right_at_;
};

double sum_of(std::span<const double> of, const std::vector<std::uint32_t>& which) {
  double sum = 0;
  for (const auto v : which) sum += of[v];
  return sum;
}

}  // namespace

infeasibility_certificate find_infeasibility(std::span<const double> supply, std::span<const double> demand,
                                             std::span<const std::pair<std::uint32_t, std::uint32_t>> edges) {
  const bipartite_flow flow(supply, demand, edges);
  infeasibility_certificate s;
  flow.closure(true, s.left, s.right);
  s.wanted = sum_of(demand, s.right);
  s.available = sum_of(supply, s.left);
  // Negligible residuals may add up; the inequality must hold for the actual sums.
  if (!(s.wanted - s.available > static_cast<double>(s.right.size() + s.left.size()) * flow.tiny())) return {};
  flow.closure(false, s.full_left, s.full_right);
  s.pushed = sum_of(supply, s.full_left);
  s.room = sum_of(demand, s.full_right);
  return s;
}

}  // namespace paracel::alg
