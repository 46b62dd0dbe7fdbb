// SPDX-License-Identifier: BSD-3-Clause
#include "alg/similarity_sparse/sparse_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/random.hpp>

#include "alg/common/solvers/top_k_neighbours.hpp"

namespace paracel::alg {
namespace {

constexpr std::size_t columns = 12;

/// Rows of multiples of one half; some are empty, some constant.
std::vector<std::vector<double>> dense_rows(std::uint64_t seed, std::size_t n) {
  counter_random random(seed);
  std::vector<std::vector<double>> rows(n, std::vector<double>(columns));
  for (std::size_t i = 0; i < n; ++i) {
    const auto density = 0.1 * static_cast<double>(i % 10);
    const bool constant = i % 7 == 0;
    for (auto& v : rows[i]) {
      if (random.uniform() < density) v = constant ? 2 : 0.5 * static_cast<double>(random.below(21)) - 4;
    }
  }
  return rows;
}

csr_rows sparse(const std::vector<std::vector<double>>& dense, similarity_method method) {
  csr_rows s;
  for (const auto& row : dense) {
    const auto begin = s.value.size();
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (row[c] == 0) continue;
      s.column.push_back(static_cast<std::uint32_t>(c));
      s.value.push_back(row[c]);
    }
    prepare_row(method, std::span(s.value).subspan(begin));
    s.begin.push_back(s.value.size());
  }
  return s;
}

/// By definition; NaN: no pair.
double expected(similarity_method method, const std::vector<double>& a, const std::vector<double>& b) {
  double n = 0, either = 0, aa = 0, bb = 0, ab = 0, ma = 0, mb = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    either += a[c] != 0 || b[c] != 0 ? 1 : 0;
    aa += a[c] * a[c];
    bb += b[c] * b[c];
    ab += a[c] * b[c];
    if (a[c] == 0 || b[c] == 0) continue;
    n += 1;
    ma += a[c];
    mb += b[c];
  }
  if (n == 0) return NAN;
  if (method == similarity_method::cosine) return ab / std::sqrt(aa * bb);
  if (method == similarity_method::jaccard) return n / either;
  aa = bb = ab = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    if (a[c] == 0 || b[c] == 0) continue;
    aa += (a[c] - ma / n) * (a[c] - ma / n);
    bb += (b[c] - mb / n) * (b[c] - mb / n);
    ab += (a[c] - ma / n) * (b[c] - mb / n);
  }
  return n < 2 || aa < 1e-9 || bb < 1e-9 ? NAN : ab / std::sqrt(aa * bb);
}

using pairs = std::map<std::pair<std::size_t, std::size_t>, double>;

TEST(SparseKernel, OwnPairsAreAllPairsOnceAndEqualTheDefinition) {
  for (const auto method : {similarity_method::cosine, similarity_method::jaccard, similarity_method::pearson}) {
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      const auto rows = dense_rows(seed, 60);
      sparse_kernel kernel(sparse(rows, method), columns, {.method = method});
      pairs found;
      kernel.own_pairs([&](std::size_t i, std::size_t j, double s) {
        EXPECT_LT(i, j);
        EXPECT_TRUE(found.emplace(std::pair(i, j), s).second);
      });
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t j = i + 1; j < rows.size(); ++j) {
          const auto e = expected(method, rows[i], rows[j]);
          const auto f = found.find({i, j});
          ASSERT_EQ(f != found.end(), !std::isnan(e)) << i << ' ' << j;
          if (f != found.end()) {
            EXPECT_NEAR(f->second, e, 1e-12);
          }
        }
      }
    }
  }
}

TEST(SparseKernel, AVisitGivesTheSameBitsAsTheOwnPairs) {
  for (const auto method : {similarity_method::cosine, similarity_method::jaccard, similarity_method::pearson}) {
    const auto rows = dense_rows(9, 50);
    const auto all = sparse(rows, method);
    pairs own;
    sparse_kernel(all, columns, {.method = method}).own_pairs([&](std::size_t i, std::size_t j, double s) {
      own[{i, j}] = s;
    });
    // Rows 0 to 29 are local, the others are received; those below 10 are excluded.
    const auto home = sparse({rows.begin(), rows.begin() + 30}, method);
    sparse_kernel kernel(home, columns, {.method = method});
    kernel.start_at(10);
    std::size_t met = 0;
    for (std::size_t j = 30; j < 50; ++j) {
      kernel.visit(all.columns_of(j), all.values_of(j), facts_of(all.values_of(j)), [&](std::uint32_t i, double s) {
        EXPECT_GE(i, 10U);
        ++met;
        EXPECT_EQ(s, own.at({i, j})) << i << ' ' << j;
      });
    }
    const auto wanted = std::count_if(own.begin(), own.end(), [](const auto& p) {
      return p.first.first >= 10 && p.first.first < 30 && p.first.second >= 30;
    });
    EXPECT_EQ(met, static_cast<std::size_t>(wanted));
  }
}

TEST(SparseKernel, LimitsDropPairs) {
  const auto rows = dense_rows(5, 60);
  const auto method = similarity_method::cosine;
  const auto count = [&](const similarity_limits& limits) {
    std::size_t n = 0;
    sparse_kernel(sparse(rows, method), columns, limits).own_pairs([&](std::size_t, std::size_t, double s) {
      ++n;
      EXPECT_GE(s, limits.least);
      EXPECT_LE(s, limits.most);
    });
    return n;
  };
  const auto wanted = [&](double least, double most, double common) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = i + 1; j < rows.size(); ++j) {
        const auto s = expected(method, rows[i], rows[j]);
        double both = 0;
        for (std::size_t c = 0; c < columns; ++c) both += rows[i][c] != 0 && rows[j][c] != 0 ? 1 : 0;
        n += s >= least && s <= most && both >= common ? 1 : 0;
      }
    }
    return n;
  };
  EXPECT_EQ(count({.method = method, .least = 0.2517}), wanted(0.2517, 2, 1));
  EXPECT_EQ(count({.method = method, .least = -0.4893, .most = 0.5117}), wanted(-0.4893, 0.5117, 1));
  EXPECT_EQ(count({.method = method, .common = 4}), wanted(-2, 2, 4));
}

TEST(SparseKernel, HugeAndTinyValuesKeepTheirSimilarity) {
  csr_rows rows;
  for (const auto& [x, y] : {std::pair(1e200, 1e200), std::pair(3e-200, 4e-200), std::pair(-1e300, 0.0)}) {
    for (const auto& [c, v] : {std::pair(0U, x), std::pair(1U, y)}) {
      rows.column.push_back(c);
      rows.value.push_back(v);
    }
    rows.begin.push_back(rows.value.size());
    prepare_row(similarity_method::cosine, std::span(rows.value).last(2));
  }
  std::vector<double> found;
  sparse_kernel(rows, 2, {}).own_pairs([&](std::size_t, std::size_t, double s) { found.push_back(s); });
  std::sort(found.begin(), found.end());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_NEAR(found[0], -std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(found[1], -0.6, 1e-15);
  EXPECT_NEAR(found[2], 7 / std::sqrt(50), 1e-15);
}

TEST(SparseKernel, CorrelationsDependOnNeitherTheScaleNorTheOffsetOfARow) {
  const auto method = similarity_method::pearson;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto rows = dense_rows(seed, 40);
    pairs wanted;
    sparse_kernel(sparse(rows, method), columns, {.method = method})
        .own_pairs([&](std::size_t i, std::size_t j, double s) {
          wanted[{i, j}] = s;
        });
    ASSERT_FALSE(wanted.empty());
    for (const auto& [factor, offset, rare] :
         {std::tuple(1e200, 0.0, 0.0), std::tuple(1e-200, 0.0, 0.0), std::tuple(1.0, 0x1p30, 0.0),
          std::tuple(0x1p-20, 0x1p20, 0.0), std::tuple(1.0, 0x1p30, 0x1p56), std::tuple(1.0, 0.0, 0x1p80)}) {
      auto changed = rows;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (auto& v : changed[i]) v = v == 0 ? 0 : v * factor + offset;
        // A value in a column of this row only.
        if (rare != 0) {
          changed[i].resize(columns + i + 1);
          changed[i].back() = rare;
        }
      }
      sparse_kernel kernel(sparse(changed, method), columns + rows.size(), {.method = method});
      SCOPED_TRACE(testing::PrintToString(std::tuple(factor, offset, rare)));
      std::size_t met = 0;
      kernel.own_pairs([&](std::size_t i, std::size_t j, double s) {
        ++met;
        ASSERT_TRUE(wanted.contains({i, j})) << i << ' ' << j;
        EXPECT_NEAR(s, wanted.at({i, j}), 1e-11);
      });
      EXPECT_EQ(met, wanted.size());
    }
  }
}

TEST(TopLists, KeepTheBestInWhateverOrderTheyCome) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    counter_random random(seed);
    std::vector<neighbour> all;
    for (std::uint64_t row = 0; row < 200; ++row)
      all.push_back({row, 0.125 * static_cast<double>(random.below(9)) - 0.5});
    auto sorted = all;
    std::sort(sorted.begin(), sorted.end(), better);
    for (const std::size_t k : {1U, 2U, 20U, 200U, 300U}) {
      random.shuffle(all);
      top_k_neighbours lists(2, k);
      for (const auto& n : all) lists.offer(1, n.row, n.similarity);
      lists.sort();
      EXPECT_TRUE(lists.of(0).empty());
      ASSERT_EQ(lists.of(1).size(), std::min<std::size_t>(k, all.size()));
      for (std::size_t i = 0; i < lists.of(1).size(); ++i) {
        EXPECT_EQ(lists.of(1)[i].row, sorted[i].row);
        EXPECT_EQ(lists.of(1)[i].similarity, sorted[i].similarity);
      }
    }
  }
}

}  // namespace
}  // namespace paracel::alg
