// SPDX-License-Identifier: BSD-3-Clause
//
// The k most similar rows of each row, from similarities in any order. The order is total (similarity descending, then
// number ascending), so the lists do not depend on the order of the offers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

/// A similar row.
struct neighbour {
  std::uint64_t row = 0;  ///< its global number
  double similarity = 0;
};
inline bool better(const neighbour& a, const neighbour& b) {
  return a.similarity != b.similarity ? a.similarity > b.similarity : a.row < b.row;
}

/// How much rounding may change a similarity of rows of this many entries: a sum of as many products, and two lengths,
/// each within n/2 units in the last place. A bar that much lower does not miss a pair that reaches it exactly.
constexpr double similarity_rounding(std::size_t entries) noexcept {
  return std::numeric_limits<double>::epsilon() * static_cast<double>(entries + 4);
}

/// Thread-safety: none
/// Cost: an offer that is not among the k best so far costs one comparison, any other O(log k); 16 bytes a neighbour.
class top_k_neighbours {
 public:
  top_k_neighbours() = default;
  top_k_neighbours(std::size_t rows, std::size_t k)
      : lists_(rows), bar_(rows, -std::numeric_limits<double>::infinity()), k_(k) {}

  void offer(std::size_t i, std::uint64_t row, double similarity) {
    if (similarity < bar_[i]) return;
    insert(i, {row, similarity});
  }
  /// The similarity that row i's next neighbour must reach.
  [[nodiscard]] double bar(std::size_t i) const { return bar_[i]; }
  [[nodiscard]] std::size_t rows() const noexcept { return lists_.size(); }
  /// Unordered before `sort`.
  [[nodiscard]] std::span<const neighbour> of(std::size_t i) const { return lists_[i]; }
  /// Sorts the lists, best first; no offers may follow.
  void sort() {
    for (auto& list : lists_) std::sort(list.begin(), list.end(), better);
  }

 private:
  void insert(std::size_t i, const neighbour& n) {
    auto& list = lists_[i];  // a heap with the worst on top once it is full
    if (list.size() == k_) {
      if (k_ == 0 || !better(n, list.front())) return;
      std::pop_heap(list.begin(), list.end(), better);
      list.back() = n;
      std::push_heap(list.begin(), list.end(), better);
    } else {
      list.push_back(n);
      if (list.size() < k_) return;
      std::make_heap(list.begin(), list.end(), better);
    }
    bar_[i] = list.front().similarity;
  }

  std::vector<std::vector<neighbour>> lists_;
  std::vector<double> bar_;
  std::size_t k_ = 0;
};

/// A line of the results: id, a tab, and id:similarity with | between them.
struct neighbour_line {
  std::string id;
  std::span<const neighbour> list;
  const id_list* ids = nullptr;  ///< of all rows, in the order of their numbers
};
inline void append_text(std::string& out, const neighbour_line& line) {
  out += line.id;
  out += '\t';
  for (std::size_t j = 0; j < line.list.size(); ++j) {
    if (j > 0) out += '|';
    const auto row = static_cast<std::size_t>(line.list[j].row);
    if (line.ids->numeric()) {
      paracel::append_text(out, line.ids->number(row));
    } else {
      out += line.ids->name(row);
    }
    out += ':';
    paracel::append_text(out, line.list[j].similarity);
  }
}

/// What a worker's lists sum up to.
struct neighbour_summary {
  std::vector<std::int64_t> sums{0, 0, 0};  ///< rows, neighbours, rows that have some
  std::vector<double> best{-2, 0, 0};       ///< the greatest similarity, and its rows

  /// Logs that of all workers. A collective. `ids`: of the rows; `others`: of their neighbours.
  void log(paralg& job, run_log& to, const id_list& ids, const id_list& others) {
    job.get_comm().allreduce(sums);
    for (const auto& other : job.get_comm().allgather(best)) {
      if (other[0] > best[0] || (other[0] == best[0] && other[1] < best[1])) best = other;
    }
    to.round(1, static_cast<double>(sums[1]));
    to.result("rows", static_cast<std::uint64_t>(sums[0]));
    to.result("rows_with_neighbours", static_cast<std::uint64_t>(sums[2]));
    to.result("neighbours", static_cast<std::uint64_t>(sums[1]));
    if (sums[1] > 0) {
      const auto text = [&](const id_list& of, double row) { return of.text(static_cast<std::size_t>(row)); };
      to.result("best_pair", text(ids, best[1]) + " " + text(others, best[2]));
      to.result("best_similarity", best[0]);
    }
    to.result("output", job.get_output());
  }
};

}  // namespace paracel::alg
