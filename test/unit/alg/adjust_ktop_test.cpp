// SPDX-License-Identifier: BSD-3-Clause
#include "alg/adjust_ktop_sparse/adjust_ktop_sparse.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

struct owned_row {
  std::vector<std::uint64_t> columns;
  std::vector<double> values;
};

/// By definition, computing each prediction separately.
double error_of(const owned_row& u, const std::vector<owned_row>& rows, const std::vector<double>& similarity,
                std::size_t k) {
  double mean = 0;
  for (const auto v : u.values) mean += v / static_cast<double>(u.values.size());
  double sum = 0;
  for (std::size_t i = 0; i < u.columns.size(); ++i) {
    double above = 0;
    double below = 0;
    for (std::size_t v = 0; v < k; ++v) {
      for (std::size_t j = 0; j < rows[v].columns.size(); ++j) {
        if (rows[v].columns[j] != u.columns[i]) continue;
        above += similarity[v] * rows[v].values[j];
        below += similarity[v];
      }
    }
    const double e = u.values[i] - (below != 0 ? above / below : mean);
    sum += e * e;
  }
  return sum;
}

TEST(KtopSearch, TakesTheLeastErrorFromTheLowerBoundOnAndOfEqualOnesTheSmallerK) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    counter_random random(seed);
    const auto draw = [&] {
      owned_row r;
      for (std::uint64_t c = 0; c < 15; ++c) {
        if (random.below(3) != 0) continue;
        r.columns.push_back(c);
        r.values.push_back(0.5 * static_cast<double>(1 + random.below(10)));
      }
      return r;
    };
    const auto u = draw();
    std::vector<owned_row> rows;
    std::vector<double> similarity;
    std::vector<rated_neighbour> neighbours;
    for (int v = 0; v < 12; ++v) {
      rows.push_back(draw());
      similarity.push_back(1.0 / (1 + v));
    }
    for (std::size_t v = 0; v < rows.size(); ++v)
      neighbours.push_back({similarity[v], rows[v].columns, rows[v].values});
    const std::size_t lower = 1 + seed % 14;
    const auto found = ktop_search()(u.columns, u.values, neighbours, lower);
    std::size_t best = std::min<std::size_t>(lower, 12);
    for (std::size_t k = best; k <= 12; ++k) {
      if (error_of(u, rows, similarity, k) < error_of(u, rows, similarity, best) - 1e-12) best = k;
    }
    EXPECT_EQ(found.k, best) << seed;
    EXPECT_NEAR(found.error, error_of(u, rows, similarity, best), 1e-10);
    EXPECT_NEAR(found.base_error, error_of(u, rows, similarity, 12), 1e-10);
  }
}

TEST(KtopSearch, WithoutNeighboursOrRatingsTheMeanPredicts) {
  const owned_row u{{1, 2, 3}, {1, 2, 3}};
  ktop_search search;
  const auto alone = search(u.columns, u.values, {}, 3);
  EXPECT_EQ(alone.k, 0U);
  EXPECT_EQ(alone.error, 2);
  EXPECT_EQ(alone.base_error, 2);
  // A similarity of 0 contributes nothing; the smallest of three equal k.
  const std::vector<rated_neighbour> none(3, rated_neighbour{0, u.columns, u.values});
  EXPECT_EQ(search(u.columns, u.values, none, 1).k, 1U);
  EXPECT_EQ(search(u.columns, u.values, none, 1).error, 2);
  EXPECT_EQ(search({}, {}, none, 2).k, 2U);
}

TEST(ParseSimilarities, ReadsPairsBehindTheTabAndNamesWhatIsWrong) {
  std::string said;
  std::size_t place = 0;
  similarity_list list;
  const auto parse = [&](const std::string& line) {
    said.clear();
    const text_failure fail = [&](const char* at, const std::string& what) {
      place = static_cast<std::size_t>(at - line.data());
      said = what;
      throw std::runtime_error(what);
    };
    try {
      return parse_similarities(line, list, fail);
    } catch (const std::runtime_error&) {
      return false;
    }
  };
  EXPECT_TRUE(parse("7\t8:0.5|a:b:-1e-3"));
  EXPECT_EQ(list.id, "7");
  ASSERT_EQ(list.neighbours.size(), 2U);
  EXPECT_EQ(list.neighbours[1].first, "a:b");
  EXPECT_EQ(list.neighbours[1].second, -1e-3);
  EXPECT_TRUE(parse("7\t"));
  EXPECT_TRUE(list.neighbours.empty());
  EXPECT_FALSE(parse("  "));
  EXPECT_EQ(said, "");
  for (const auto& [line, at] :
       {std::pair("7 8:1", 5U), {"\t8:1", 0U}, {"7\t8", 2U}, {"7\t8:1|9:x", 8U}, {"7\t8:nan", 4U}}) {
    EXPECT_FALSE(parse(line));
    EXPECT_NE(said, "") << line;
    EXPECT_EQ(place, at) << line;
  }
}

}  // namespace
}  // namespace paracel::alg
