// SPDX-License-Identifier: BSD-3-Clause
//
// Ranking: rows belong to groups (queries), a label is a relevance from 0 to 30, and only the order of the margins
// within a group counts. Its quality is
//
//     NDCG@k = sum_i (2^label_i - 1) / log2(1 + position_i) over positions up to k, divided by its greatest value
//
// with positions from 1 by descending margin, ties in the order of the rows; a group without a relevant row counts
// as 1. In LambdaMART each pair of rows of a group, i more relevant than j, pushes i up and j down,
//
//     dm_i = -|dNDCG_ij| / (1 + exp(m_i - m_j))        dm_j = -dm_i
//
// where |dNDCG_ij| is the change of NDCG if the two were exchanged (positions are not cut at k), divided by
// 0.01 + |m_i - m_j| once the margins of the group differ, so that rows far apart matter less; at least one row of a
// pair is among the first `truncation` ones. Second derivatives are those of |dNDCG_ij| log(1 + exp(m_j - m_i)). A
// group's derivatives are scaled by log2(1 + s) / s, s being the sum of its pushes, so that no group outweighs the
// others.
//
// The rows of a group may be on any workers. One worker computes for the whole group: the one that has its rows or, if
// several have some, one of these, to which the others send their margins, and which returns the derivatives. So if
// groups are contiguous, only rows of groups cut by the ends of the workers' parts are sent. A group is computed from
// the same numbers in the same order on any worker, so the result does not depend on the number of workers.
//
// Source: C. Burges, "From RankNet to LambdaRank to LambdaMART: an overview", Microsoft Research MSR-TR-2010-82, 2010;
// distance and scale are LightGBM's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/collectives.hpp>

#include "gbdt_loss.hpp"

namespace paracel::alg {

/// The groups of all workers' rows. Thread-safety: none.
class ranking_groups {
 public:
  /// `group`: of each row. The weight of a group is the mean of its rows'. A collective. Cost: once 24 bytes a group
  /// that a worker has rows of, and 16 bytes a row of groups that are cut.
  ranking_groups(collectives& all, const labelled_rows& rows, std::span<const std::uint64_t> group);

  /// The derivatives with respect to the margins of this worker's rows. A collective. Cost: 24 bytes a row of groups
  /// that are cut; O(min(n, truncation) n) for a group of n rows.
  void derivatives(collectives& all, std::span<const double> margin, std::size_t truncation, std::span<double> first,
                   std::span<double> second);
  /// The mean NDCG@k of all groups by their weights; k 0: of all positions. A collective.
  [[nodiscard]] double ndcg(collectives& all, std::span<const double> margin, std::size_t k);

 private:
  /// Rows [begin, end) of those that this worker computes for.
  struct group_rows {
    std::size_t begin = 0;
    std::size_t end = 0;
    double weight = 1;
  };

  void gather(collectives& all, std::span<const double> margin);
  void sort_rows(const group_rows& g);
  [[nodiscard]] double greatest_dcg(const group_rows& g, std::size_t k);
  void push_pairs(const group_rows& g, std::size_t truncation);
  [[nodiscard]] double discount(std::size_t position);

  std::uint64_t rows_total_;
  std::vector<std::vector<std::uint32_t>> sent_;  // by rank: this worker's rows that the rank computes for
  std::vector<std::vector<std::size_t>> place_;   // by rank: where the rows received from it are
  std::vector<group_rows> groups_;
  double weights_ = 0;  // of all workers' groups
  // The rows that this worker computes for.
  std::vector<double> label_;
  std::vector<double> margin_;
  std::vector<double> first_;
  std::vector<double> second_;
  std::vector<std::uint32_t> order_;  // of a group
  std::vector<double> gain_;
  std::vector<double> discount_;
};

}  // namespace paracel::alg
