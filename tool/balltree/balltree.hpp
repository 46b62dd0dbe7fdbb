// SPDX-License-Identifier: BSD-3-Clause
//
// The k vectors with the greatest inner product with a query, out of many: a tree of balls (centre and radius) over the
// vectors. In a ball of centre c and radius r no product with q exceeds q.c + r |q|, so whole balls are skipped.
//
// Source: P. Ram, A. Gray, "Maximum inner-product search using cone trees", KDD 2012. Needs no other header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace paracel {

/// What to search for: the `k` best of the indices that are not black and, if there are white ones, are white.
struct query {
  explicit query(std::vector<double> q, std::size_t count, std::unordered_set<long> black = {},
                 std::unordered_set<long> white = {})
      : vector(std::move(q)), k(count), black_ids(std::move(black)), white_ids(std::move(white)) {}
  std::vector<double> vector;
  std::size_t k;
  std::unordered_set<long> black_ids;
  std::unordered_set<long> white_ids;
};

namespace balltree_detail {

template <class T>
double dot(const std::vector<double>& a, const std::vector<T>& b) {
  if (a.size() != b.size())
    throw std::invalid_argument("a query of " + std::to_string(a.size()) + " numbers for vectors of " +
                                std::to_string(b.size()));
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The best found so far, ties to the smaller index.
class candidates {
 public:
  explicit candidates(const query& q) : q_(q) {}
  [[nodiscard]] bool may_improve(double bound) const {
    return best_.size() < q_.k || (q_.k > 0 && bound >= -best_.top().first);
  }
  void add(long id, double product) {
    if (q_.black_ids.count(id) != 0 || (!q_.white_ids.empty() && q_.white_ids.count(id) == 0)) return;
    best_.emplace(-product, id);
    if (best_.size() > q_.k) best_.pop();
  }
  [[nodiscard]] std::vector<long> in_order() {
    std::vector<long> ids;
    for (; !best_.empty(); best_.pop()) ids.push_back(best_.top().second);
    std::reverse(ids.begin(), ids.end());
    return ids;
  }

 private:
  const query& q_;
  std::priority_queue<std::pair<double, long>> best_;  // the worst on top
};

}  // namespace balltree_detail

/// Thread-safety: const-concurrent. Lifetime: the vectors must outlive the tree.
template <class T = double>
class balltree {
 public:
  explicit balltree(const std::vector<std::vector<T>>& vectors) : vectors_(vectors) {}

  /// Cost: O(n d log n).
  void build() {
    order_.resize(vectors_.size());
    std::iota(order_.begin(), order_.end(), 0L);
    nodes_.clear();
    if (!order_.empty()) (void)add(0, order_.size());
  }
  /// Writes the tree without the vectors. Throws: std::runtime_error.
  void pickle(const std::string& file) const {
    std::ofstream out(file);
    out.precision(17);
    out << "balltree " << order_.size() << ' ' << nodes_.size() << '\n';
    for (const long id : order_) out << id << ' ';
    for (const auto& n : nodes_) {
      out << '\n' << n.begin << ' ' << n.end << ' ' << n.left << ' ' << n.right << ' ' << n.radius;
      for (const double x : n.centre) out << ' ' << x;
    }
    out << '\n';
    out.close();
    if (!out) throw std::runtime_error(file + ": cannot be written");
  }
  /// Reads the tree that `pickle` wrote for the same vectors. Throws: std::runtime_error when the file is not one.
  void build_from_file(const std::string& file) {
    const auto bad = [&file] { return std::runtime_error(file + ": no tree of these vectors"); };
    std::ifstream in(file);
    std::string name;
    std::size_t n = 0, nodes = 0;
    if (!(in >> name >> n >> nodes) || name != "balltree" || n != vectors_.size() || nodes > 2 * n) throw bad();
    order_.assign(n, 0);
    nodes_.assign(nodes, {});
    for (auto& id : order_)
      if (!(in >> id) || id < 0 || static_cast<std::size_t>(id) >= n) throw bad();
    for (std::size_t i = 0; i < nodes; ++i) {
      auto& node = nodes_[i];
      if (!(in >> node.begin >> node.end >> node.left >> node.right >> node.radius) || node.end > n ||
          node.begin > node.end || (node.left != 0 && (node.left <= i || node.left >= nodes)) ||
          (node.left != 0 && (node.right <= i || node.right >= nodes)))
        throw bad();
      node.centre.resize(vectors_.front().size());
      for (auto& x : node.centre)
        if (!(in >> x)) throw bad();
    }
  }

  /// Indices of the vectors, the greatest product first; after `build`.
  [[nodiscard]] std::vector<long> search(const query& q) const {
    balltree_detail::candidates best(q);
    const double norm = std::sqrt(std::inner_product(q.vector.begin(), q.vector.end(), q.vector.begin(), 0.0));
    if (!nodes_.empty()) visit(0, q, norm, best);
    return best.in_order();
  }

 private:
  struct node {
    std::size_t begin = 0, end = 0;   // of order_
    std::size_t left = 0, right = 0;  // 0: a leaf
    double radius = 0;
    std::vector<double> centre;
  };
  static constexpr std::size_t leaf_size = 16;

  [[nodiscard]] const std::vector<T>& at(std::size_t i) const { return vectors_[static_cast<std::size_t>(order_[i])]; }
  [[nodiscard]] static double distance(const std::vector<double>& a, const std::vector<T>& b) {
    double sum = 0;
    for (std::size_t j = 0; j < a.size(); ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
    return std::sqrt(sum);
  }
  std::size_t farthest(std::size_t begin, std::size_t end, const std::vector<double>& from) const {
    std::size_t best = begin;
    for (std::size_t i = begin; i < end; ++i)
      if (distance(from, at(i)) > distance(from, at(best))) best = i;
    return best;
  }
  std::size_t add(std::size_t begin, std::size_t end) {
    const auto number = nodes_.size();
    nodes_.emplace_back();
    node n;
    n.begin = begin;
    n.end = end;
    n.centre.assign(at(begin).size(), 0.0);
    for (std::size_t i = begin; i < end; ++i) {
      if (at(i).size() != n.centre.size()) throw std::invalid_argument("vectors of different lengths");
      for (std::size_t j = 0; j < n.centre.size(); ++j) n.centre[j] += at(i)[j] / static_cast<double>(end - begin);
    }
    // Rounding must not make the ball too small.
    n.radius = distance(n.centre, at(farthest(begin, end, n.centre))) * (1 + 1e-12);
    if (end - begin > leaf_size && n.radius > 0) {
      // Two points far apart; the others are split into halves by which of these is nearer.
      const auto& a = at(farthest(begin, end, n.centre));
      const std::vector<double> first(a.begin(), a.end());
      const auto& b = at(farthest(begin, end, first));
      const std::vector<double> second(b.begin(), b.end());
      const auto middle = begin + (end - begin) / 2;
      std::vector<std::pair<double, long>> sides;
      for (std::size_t i = begin; i < end; ++i)
        sides.emplace_back(distance(first, at(i)) - distance(second, at(i)), order_[i]);
      std::sort(sides.begin(), sides.end());
      for (std::size_t i = begin; i < end; ++i) order_[i] = sides[i - begin].second;
      n.left = add(begin, middle);
      n.right = add(middle, end);
    }
    nodes_[number] = std::move(n);
    return number;
  }
  [[nodiscard]] double bound(std::size_t i, const query& q, double norm) const {
    const double product = balltree_detail::dot(q.vector, nodes_[i].centre);
    return product + nodes_[i].radius * norm + 1e-12 * (std::abs(product) + norm);
  }
  void visit(std::size_t i, const query& q, double norm, balltree_detail::candidates& best) const {
    const auto& n = nodes_[i];
    if (!best.may_improve(bound(i, q, norm))) return;
    if (n.left == 0) {
      for (std::size_t k = n.begin; k < n.end; ++k) best.add(order_[k], balltree_detail::dot(q.vector, at(k)));
      return;
    }
    const bool left_first = bound(n.left, q, norm) >= bound(n.right, q, norm);
    visit(left_first ? n.left : n.right, q, norm, best);
    visit(left_first ? n.right : n.left, q, norm, best);
  }

  const std::vector<std::vector<T>>& vectors_;
  std::vector<long> order_;
  std::vector<node> nodes_;
};

/// By the tree, or by scanning all vectors: the same result.
template <class T>
void search(const query& q, const balltree<T>& tree, std::vector<long>& result) {
  result = tree.search(q);
}
template <class T>
void search(const query& q, const std::vector<std::vector<T>>& vectors, std::vector<long>& result) {
  balltree_detail::candidates best(q);
  for (std::size_t i = 0; i < vectors.size(); ++i)
    best.add(static_cast<long>(i), balltree_detail::dot(q.vector, vectors[i]));
  result = best.in_order();
}

}  // namespace paracel
