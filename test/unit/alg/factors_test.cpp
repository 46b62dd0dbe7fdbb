// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <paracel/random.hpp>

#include "alg/als/als.hpp"
#include "alg/common/solvers/factor_kernels.hpp"
#include "alg/common/solvers/recommend.hpp"
#include "alg/common/solvers/sgd_kernel.hpp"
#include "alg/factorization_machine/fm_kernel.hpp"
#include "alg/matrix_factorization/mf.hpp"

namespace paracel::alg {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::vector<double> random_numbers(std::size_t n, std::uint64_t seed, double scale = 1) {
  counter_random random(seed);
  std::vector<double> v(n);
  for (auto& x : v) x = scale * random.normal();
  return v;
}

/// Random ratings of `rows` by `columns`, at least one a row, as load_sparse returns them on one worker.
sparse_rows some_ratings(std::size_t rows, std::size_t columns, double part, std::uint64_t seed) {
  counter_random random(seed, 7);
  sparse_rows a;
  a.row_first = {0, rows};
  std::vector<std::uint64_t> row_ids(rows);
  std::vector<std::uint64_t> column_ids(columns);
  std::iota(row_ids.begin(), row_ids.end(), std::uint64_t{100});
  std::iota(column_ids.begin(), column_ids.end(), std::uint64_t{1000});
  a.row_ids = id_list(row_ids);
  a.column_ids = id_list(column_ids);
  a.column_number.resize(columns);
  std::iota(a.column_number.begin(), a.column_number.end(), std::uint64_t{0});
  a.columns_total = columns;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t c = 0; c < columns; ++c) {
      if (c != i % columns && random.uniform() > part) continue;
      a.column.push_back(static_cast<std::uint32_t>(c));
      a.value.push_back(0.5 * static_cast<double>(1 + random.below(10)));
    }
    a.begin.push_back(a.column.size());
  }
  a.entries_total = a.column.size();
  return a;
}

sparse_rows transposed(const sparse_rows& a) {
  sparse_rows t;
  t.row_first = {0, a.columns_total};
  t.row_ids = a.column_ids;
  t.column_ids = a.row_ids;
  t.column_number.resize(a.rows());
  std::iota(t.column_number.begin(), t.column_number.end(), std::uint64_t{0});
  t.columns_total = a.rows();
  t.entries_total = a.entries_total;
  std::vector<std::vector<std::pair<std::uint32_t, double>>> rows(a.columns_total);
  for (std::size_t i = 0; i < a.rows(); ++i) {
    for (std::size_t e = a.begin[i]; e < a.begin[i + 1]; ++e) rows[a.column[e]].emplace_back(i, a.value[e]);
  }
  for (const auto& row : rows) {
    for (const auto& [c, v] : row) {
      t.column.push_back(c);
      t.value.push_back(v);
    }
    t.begin.push_back(t.column.size());
  }
  return t;
}

std::vector<double> some_rows(std::size_t count, std::size_t k, std::uint64_t seed) {
  auto v = random_numbers(count * row_width(k), seed, 0.3);
  for (std::size_t i = 0; i < count; ++i) v[i * row_width(k) + known_at] = 1;
  return v;
}

// ---- kernels

TEST(FactorKernels, SumsAreThoseOfAPlainLoopForEveryLength) {
  for (std::size_t n = 0; n < 70; ++n) {
    const auto a = random_numbers(n, 1);
    const auto b = random_numbers(n, 2);
    double product = 0;
    double distance = 0;
    for (std::size_t j = 0; j < n; ++j) {
      product += a[j] * b[j];
      distance += (a[j] - b[j]) * (a[j] - b[j]);
    }
    EXPECT_NEAR(dot(a.data(), b.data(), n), product, 1e-12 * (1 + static_cast<double>(n)));
    EXPECT_NEAR(squared_distance(a.data(), b.data(), n), distance, 1e-12 * (1 + static_cast<double>(n)));
  }
}

/// Steps of sgd_pass compared with those of a plain loop in doubles, from the same rows.
template <class Real>
void expect_steps_of_a_plain_loop(double near) {
  for (const std::size_t k : {0UL, 1UL, 5UL, 8UL, 15UL, 16UL, 28UL, 32UL, 45UL}) {
    const std::size_t width = row_width(k);
    auto users = some_rows(6, k, 3);
    auto items = some_rows(7, k, 4);
    std::vector<Real> users_here(users.begin(), users.end());
    std::vector<Real> items_here(items.begin(), items.end());
    const sgd_step step{k, 3.5, 0.01, 0.2};
    // Six runs, the last but one not next to the others; slots are not columns.
    const std::vector<std::uint32_t> user{3, 0, 4, 1, 5, 2};
    const std::vector<std::uint64_t> begin{0, 1, 5, 9, 13, 10};
    const std::vector<std::uint64_t> end{1, 5, 9, 10, 14, 13};
    const std::vector<std::uint32_t> column{2, 6, 0, 2, 1, 1, 6, 5, 2, 2, 4, 6, 2, 2};
    const std::vector<std::uint32_t> slot{3, 1, 0, 99, 5, 6, 2};
    const std::vector<Real> value{5, 1, 3, 4.5, 2, 0.5, 4, 3, 1, 2.5, 4, 5, 1.5, 3.5};
    // Four take turns: user 3's only rating, then 5 in its place; 1's only one, then 2.
    const std::vector<std::pair<std::size_t, std::size_t>> turns{{0, 0},  {1, 1}, {2, 5},  {3, 9}, {4, 13},
                                                                 {1, 2},  {2, 6}, {5, 10}, {1, 3}, {2, 7},
                                                                 {5, 11}, {1, 4}, {2, 8},  {5, 12}};
    double loss = 0;
    for (const auto& [j, t] : turns) {
      double* w = users.data() + user[j] * width;
      double* h = items.data() + slot[column[t]] * width;
      double e = value[t] - 3.5 - w[bias_at] - h[bias_at];
      for (std::size_t i = factors_at; i < width; ++i) e -= w[i] * h[i];
      loss += e * e;
      for (std::size_t i = factors_at; i < width; ++i) {
        const double old = w[i];
        w[i] += 0.01 * (2 * e * h[i] - 0.2 * old);
        h[i] += 0.01 * (2 * e * old - 0.2 * h[i]);
      }
      w[bias_at] += 0.01 * (2 * e - 0.2 * w[bias_at]);
      h[bias_at] += 0.01 * (2 * e - 0.2 * h[bias_at]);
    }
    EXPECT_NEAR(sgd_pass<Real>(step, users_here.data(), items_here.data(), {user, begin, end, column, value, slot}),
                loss, near * loss);
    for (std::size_t i = 0; i < users.size(); ++i) EXPECT_NEAR(users_here[i], users[i], near) << k << " " << i;
    for (std::size_t i = 0; i < items.size(); ++i) EXPECT_NEAR(items_here[i], items[i], near) << k << " " << i;
  }
}

TEST(SgdKernel, StepsAreThoseOfAPlainLoopForEveryNumberOfFactors) {
  expect_steps_of_a_plain_loop<double>(1e-13);
  expect_steps_of_a_plain_loop<float>(2e-6);
  EXPECT_EQ(sgd_pass<float>({4, 0, 0.1, 0.1}, nullptr, nullptr, {}), 0);
}

// ---- mf

TEST(MfItemShare, PartsOfAllWorkersAddUpToTheWayOfOne) {
  for (const std::size_t workers : {1U, 2U, 4U, 16U}) {
    for (const std::uint32_t steps : {1U, 30U, 1000U, 1000000U}) {
      const double on_a_copy = 1 - std::exp(-2 * 0.005 * steps);
      const double of_one = 1 - std::exp(-2 * 0.005 * steps * static_cast<double>(workers));
      EXPECT_NEAR(item_share(0.005, steps, workers) * on_a_copy * static_cast<double>(workers), of_one, 1e-12);
    }
  }
  EXPECT_EQ(item_share(0.005, 12345, 1), 1);  // results of one worker are unchanged
  EXPECT_EQ(item_share(0.005, 0, 4), 1);
  EXPECT_NEAR(item_share(1e-12, 1, 4), 1, 1e-9);
  EXPECT_NEAR(item_share(1, 1000000, 4), 0.25, 1e-12);
}

TEST(MfOrder, ARoundVisitsEveryRatingOnceWhateverThePieces) {
  const auto ratings = some_ratings(30, 12, 0.4, 1);
  mf_order<double> order(ratings, 9);
  mf_order<double>::piece p;
  for (const std::uint64_t round : {0U, 1U, 2U}) {
    order.shuffle(round);
    for (const std::size_t pieces : {1UL, 3UL, 10UL, 1000UL}) {
      std::multiset<std::tuple<std::uint32_t, std::uint32_t, double>> seen;
      for (std::size_t n = 0; n < pieces; ++n) {
        order.cut(n, pieces, p);
        EXPECT_EQ(std::set(p.user.begin(), p.user.end()).size(), p.user.size());
        ASSERT_EQ(p.begin.size(), p.user.size());
        ASSERT_EQ(p.end.size(), p.user.size());
        std::map<std::uint32_t, std::uint32_t> steps;
        for (std::size_t j = 0; j < p.user.size(); ++j) {
          EXPECT_LT(p.begin[j], p.end[j]);
          for (auto t = p.begin[j]; t < p.end[j]; ++t) {
            const auto column = order.columns()[t];
            EXPECT_EQ(p.column.at(order.slots()[column]), column);
            ++steps[column];
            seen.emplace(p.user[j], column, order.values()[t]);
          }
        }
        ASSERT_EQ(p.steps.size(), p.column.size());
        ASSERT_EQ(steps.size(), p.column.size());
        for (std::size_t s = 0; s < p.column.size(); ++s) EXPECT_EQ(p.steps[s], steps[p.column[s]]);
      }
      std::multiset<std::tuple<std::uint32_t, std::uint32_t, double>> all;
      for (std::size_t i = 0; i < ratings.rows(); ++i) {
        for (std::size_t e = ratings.begin[i]; e < ratings.begin[i + 1]; ++e) {
          all.emplace(static_cast<std::uint32_t>(i), ratings.column[e], ratings.value[e]);
        }
      }
      EXPECT_EQ(seen, all);
    }
  }
}

TEST(MfOrder, TheOrderIsAFunctionOfSeedAndRound) {
  const auto ratings = some_ratings(30, 12, 0.4, 1);
  const auto slots = [&](std::uint64_t seed, std::uint64_t round, bool twice) {
    mf_order<float> order(ratings, seed);
    if (twice) order.shuffle(round + 5);
    order.shuffle(round);
    mf_order<float>::piece p;
    order.cut(0, 1, p);
    std::vector<std::pair<std::uint32_t, float>> visited;
    for (std::size_t j = 0; j < p.user.size(); ++j) {
      for (auto t = p.begin[j]; t < p.end[j]; ++t) visited.emplace_back(order.columns()[t], order.values()[t]);
    }
    return visited;
  };
  EXPECT_EQ(slots(1, 2, false), slots(1, 2, true));
  EXPECT_NE(slots(1, 2, false), slots(1, 3, false));
  EXPECT_NE(slots(1, 2, false), slots(2, 2, false));
}

TEST(MfOrder, StartsHaveTheMomentsThatWereAskedFor) {
  double sum = 0;
  double squares = 0;
  std::vector<double> row(row_width(50));
  for (std::uint64_t key = 0; key < 2000; ++key) {
    start_row(row, 3, item_stream, key, 0.1);
    EXPECT_EQ(row[bias_at], 0);
    EXPECT_EQ(row[known_at], 1);
    for (std::size_t j = factors_at; j < row.size(); ++j) {
      sum += row[j];
      squares += row[j] * row[j];
    }
  }
  EXPECT_NEAR(sum / 1e5, 0, 5 * 0.1 / std::sqrt(1e5));
  EXPECT_NEAR(squares / 1e5, 0.01, 0.01 * 5 * std::sqrt(2 / 1e5));
}

// ---- als

double explicit_objective(const als_model& m, const sparse_rows& a, const sparse_rows& t, std::span<const double> users,
                          std::span<const double> items) {
  const std::size_t width = row_width(m.k);
  double sum = als_penalty(m, a, users) + als_penalty(m, t, items);
  for (std::size_t i = 0; i < a.rows(); ++i) {
    for (std::size_t e = a.begin[i]; e < a.begin[i + 1]; ++e) {
      const double* w = users.data() + i * width;
      const double* h = items.data() + a.column[e] * width;
      const double miss = a.value[e] - m.mean - w[bias_at] - h[bias_at] - dot(w + factors_at, h + factors_at, m.k);
      sum += miss * miss;
    }
  }
  return sum;
}

TEST(Als, TheObjectiveIsRightAndNeverRisesAtAHalfStep) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    for (const std::size_t k : {0UL, 3UL, 20UL}) {
      for (const bool weighted : {true, false}) {
        const auto a = some_ratings(25, 18, 0.3, seed);
        const auto t = transposed(a);
        als_model m;
        m.k = k;
        m.mean = 2.7;
        m.lambda = 0.1;
        m.lambda_bias = 0.05;
        m.weighted = weighted;
        std::vector<double> users(a.rows() * row_width(k));
        auto items = some_rows(t.rows(), k, seed + 50);
        double last = explicit_objective(m, a, t, users, items);
        for (int step = 0; step < 10; ++step) {
          const bool first = step % 2 == 0;
          const auto sums = first ? als_half_step(m, a, items, {}, users) : als_half_step(m, t, users, {}, items);
          const double now = explicit_objective(m, a, t, users, items);
          const double said = sums.squares + sums.penalty + als_penalty(m, first ? t : a, first ? items : users);
          EXPECT_NEAR(said, now, 1e-10 * now);
          EXPECT_LE(now, last * (1 + 1e-10));
          last = now;
        }
      }
    }
  }
}

TEST(Als, TheImplicitObjectiveOverAllCellsNeverRises) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    const std::size_t k = 6;
    auto a = some_ratings(25, 18, 0.3, seed);
    a.value[3] = 0;  // an explicit zero counts as absent
    const auto t = transposed(a);
    als_model m;
    m.form = als_form::implicit_ratings;
    m.k = k;
    m.lambda = 0.3;
    m.alpha = 4;
    m.cg_steps = seed > 3 ? static_cast<std::size_t>(seed) - 3 : 0;
    std::vector<double> users(a.rows() * row_width(k));
    auto items = some_rows(t.rows(), k, seed + 50);
    for (std::size_t i = 0; i < t.rows(); ++i) items[i * row_width(k)] = 0;
    const auto objective = [&] {
      double sum = als_penalty(m, a, users) + als_penalty(m, t, items);
      for (std::size_t i = 0; i < a.rows(); ++i) {
        std::map<std::uint32_t, double> rated;
        for (std::size_t e = a.begin[i]; e < a.begin[i + 1]; ++e) rated[a.column[e]] = a.value[e];
        for (std::uint32_t c = 0; c < t.rows(); ++c) {
          const double r = rated.contains(c) ? rated[c] : 0;
          const double* w = users.data() + i * row_width(k) + factors_at;
          const double y = dot(w, items.data() + c * row_width(k) + factors_at, k);
          sum += (1 + m.alpha * r) * std::pow((r > 0 ? 1 : 0) - y, 2);
        }
      }
      return sum;
    };
    double last = objective();
    for (int step = 0; step < 10; ++step) {
      const bool first = step % 2 == 0;
      auto& own = first ? users : items;
      const auto& other = first ? items : users;
      const auto gram = factor_gram(k, other);
      const auto sums = als_half_step(m, first ? a : t, other, gram, own);
      const auto mine = factor_gram(k, own);
      double said = sums.squares + sums.penalty + als_penalty(m, first ? t : a, other);
      for (std::size_t j = 0; j < k * k; ++j) said += gram[j] * mine[j];
      const double now = objective();
      EXPECT_NEAR(said, now, 1e-10 * now);
      EXPECT_LE(now, last * (1 + 1e-10));
      last = now;
    }
  }
}

// ---- lists

/// A few samples with entries between -1 and 1, labels for the loss, and weights; as dense or as sparse rows.
sample_rows some_samples(bool dense, bool classes, std::uint64_t seed) {
  counter_random random(seed);
  sample_rows s;
  s.dense = dense;
  s.columns = 7;
  for (int i = 0; i < 12; ++i) {
    for (std::uint32_t j = 0; j < s.columns; ++j) {
      const double x = random.uniform() < 0.5 ? 0 : 2 * random.uniform() - 1;
      if (dense || x != 0) s.value.push_back(x);
      if (!dense && x != 0) s.column.push_back(j);
    }
    if (!dense) s.row_begin.push_back(s.value.size());
    s.label.push_back(classes ? static_cast<double>(random.below(2)) : 3 * random.normal());
    ++s.row_count;
  }
  return s;
}

TEST(FmKernel, TheMarginIsTheSumOverPairsForDenseAndSparseRows) {
  const std::size_t k = 3;
  const auto dense = some_samples(true, false, 5);
  const auto sparse = some_samples(false, false, 5);
  const auto rows = random_numbers((dense.columns + 1) * (k + 1), 9);  // of the bias and of all features
  fm_kernel kernel(fm_loss::squared, k, {});
  for (const bool bias : {true, false}) {
    for (const auto* samples : {&dense, &sparse}) {
      fm_batcher batcher(*samples, {}, bias, false);
      fm_batch batch;
      batcher.cut(0, dense.rows(), batch);
      std::vector<double> model;
      for (const auto id : batch.ids) {
        const auto* row = rows.data() + id * (k + 1);
        model.insert(model.end(), row, row + k + 1);
      }
      for (std::size_t i = 0; i < dense.rows(); ++i) {
        const auto x = dense.dense_row(i);
        double expected = bias ? rows[0] : 0;
        for (std::size_t j = 0; j < x.size(); ++j) {
          const auto* row = rows.data() + (j + 1) * (k + 1);
          expected += row[0] * x[j];
          for (std::size_t l = j + 1; l < x.size(); ++l) {
            const auto* other = rows.data() + (l + 1) * (k + 1);
            expected += x[j] * x[l] * std::inner_product(row + 1, row + 1 + k, other + 1, 0.0);
          }
        }
        EXPECT_NEAR(kernel.margin(batch, i, model), expected, 1e-12);
      }
    }
  }
}

TEST(FmKernel, TheGradientIsThatOfDifferences) {
  const std::vector<double> weights{1, 2, 0, .5, 1, 3, 1, 1, .25, 1, 1, 2};
  for (const auto loss : {fm_loss::squared, fm_loss::log}) {
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{5}}) {
      for (const bool bias : {true, false}) {
        SCOPED_TRACE(k);
        const auto samples = some_samples(false, loss == fm_loss::log, 21 + k);
        fm_batcher batcher(samples, weights, bias, loss == fm_loss::log);
        fm_batch batch;
        batcher.cut(std::vector<std::uint32_t>{3, 0, 1, 11, 5, 8, 2, 10}, batch);
        fm_kernel kernel(loss, k, {0.3, 0.7});
        auto model = random_numbers(batch.ids.size() * kernel.width(), 4);
        std::vector<double> gradient(model.size());
        std::vector<double> curvature(batch.ids.size());
        std::vector<double> unused(model.size());
        std::vector<double> unused_too(curvature.size());
        const auto objective = [&] {
          return kernel.gradient(batch, model, unused, unused_too) + kernel.penalties(batch, model);
        };
        kernel.gradient(batch, model, gradient, curvature);
        for (std::size_t i = 0; i < model.size(); ++i) {
          const double h = 1e-5;
          const double at = model[i];
          model[i] = at + h;
          const double above = objective();
          model[i] = at - h;
          const double below = objective();
          model[i] = at;
          EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-6 * (1 + std::abs(gradient[i]))) << i;
        }
      }
    }
  }
}

TEST(FmKernel, SharesOfAllWorkersDoNotOvershoot) {
  EXPECT_EQ(fm_share(0.1, 0, 4), 1);
  EXPECT_NEAR(fm_share(1e-9, 1, 4), 1, 1e-8);
  for (const std::size_t workers : {1UL, 4UL}) {
    for (const double curvature : {0.01, 1.0, 1e5}) {
      const auto w = static_cast<double>(workers);
      // The gradient of curvature c at distance 1 is c, so the step is alpha c share of each worker.
      EXPECT_NEAR(w * 0.1 * curvature * fm_share(0.1, curvature, workers), 1 - std::exp(-0.1 * curvature * w), 1e-12);
    }
  }
}

TEST(Recommend, TheBestItemsAreThoseOfASort) {
  counter_random random(4);
  for (const std::size_t size : {0UL, 1UL, 7UL, 50UL, 200UL}) {
    best_items best(size);
    std::vector<std::pair<double, std::uint32_t>> all;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const auto score = static_cast<double>(random.below(20));
      best.add(score, i);
      all.emplace_back(score, i);
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    all.resize(std::min(size, all.size()));
    EXPECT_EQ(best.take(), all);
  }
}

TEST(Recommend, QualityOfAListHasItsClosedForm) {
  const std::vector<std::uint32_t> list{4, 9, 2, 7};
  const std::vector<std::uint32_t> relevant{2, 4, 50};
  const auto q = quality_of(list, relevant, 1, 3);
  EXPECT_NEAR(q.recall, 2.0 / 4, 1e-15);
  EXPECT_NEAR(q.ndcg, (1 + 1 / std::log2(4)) / (1 + 1 / std::log2(3) + 1 / std::log2(4)), 1e-15);
  EXPECT_EQ(quality_of(list, {}, 0, 3).ndcg, 0);
  EXPECT_EQ(quality_of({}, relevant, 0, 3).recall, 0);
  const std::vector<std::uint32_t> perfect{2, 4, 50};
  EXPECT_NEAR(quality_of(perfect, relevant, 0, 10).ndcg, 1, 1e-15);
  EXPECT_NEAR(quality_of(perfect, relevant, 0, 10).recall, 1, 1e-15);
}

/// Rows [begin, end) of ratings, as another worker would have them: with all columns.
sparse_rows rows_of(const sparse_rows& a, std::size_t begin, std::size_t end) {
  sparse_rows part = a;
  part.begin.clear();
  for (std::size_t i = begin; i <= end; ++i) part.begin.push_back(a.begin[i] - a.begin[begin]);
  part.column.assign(a.column.begin() + static_cast<std::ptrdiff_t>(a.begin[begin]),
                     a.column.begin() + static_cast<std::ptrdiff_t>(a.begin[end]));
  part.value.assign(a.value.begin() + static_cast<std::ptrdiff_t>(a.begin[begin]),
                    a.value.begin() + static_cast<std::ptrdiff_t>(a.begin[end]));
  return part;
}

TEST(MfObjective, IsTheFormulaWithItsGradientAndASumOverWorkers) {
  const std::size_t users = 7;
  const std::size_t items = 5;
  const auto ratings = some_ratings(users, items, 0.5, 3);
  std::vector<double> counts(items);
  for (const auto c : ratings.column) counts[c] += 1;
  const double mean = 2.5;
  for (const std::size_t k : {0U, 3U, 11U}) {
    for (const bool weighted : {true, false}) {
      const mf_penalties penalties{0.3, 0.2, weighted};
      mf_objective f(ratings, k, mean, 1.1, penalties, counts);
      ASSERT_EQ(f.dimension(), (users + items) * (k + 1));
      ASSERT_EQ(f.shared(), items * (k + 1));
      // From rows to coordinates and back.
      const std::size_t width = row_width(k);
      auto rows = random_numbers((users + items) * width, k + 1, 0.7);
      std::vector<double> w(f.dimension());
      const auto row = [&](std::size_t i) { return std::span(rows).subspan(i * width, width); };
      for (std::size_t u = 0; u < users; ++u) f.put_user(u, row(u), w);
      for (std::size_t i = 0; i < items; ++i) f.put_item(i, row(users + i), w);
      std::vector<double> back(width);
      for (std::size_t r = 0; r < users + items; ++r) {
        row(r)[known_at] = 1;
        if (r < users) f.get_user(r, w, back);
        else f.get_item(r - users, w, back);
        for (std::size_t j = 0; j < width; ++j) EXPECT_NEAR(back[j], row(r)[j], 1e-14);
      }
      // The formula.
      double expected = 0;
      const auto penalty = [&](std::span<const double> r, double n) {
        const auto h = r.subspan(factors_at);
        return (weighted ? n : 1) * (penalties.lambda * std::inner_product(h.begin(), h.end(), h.begin(), 0.0) +
                                     penalties.lambda_bias * r[bias_at] * r[bias_at]);
      };
      for (std::size_t u = 0; u < users; ++u) {
        expected += penalty(row(u), static_cast<double>(ratings.columns_of(u).size()));
        for (auto e = ratings.begin[u]; e < ratings.begin[u + 1]; ++e) {
          const auto h = row(users + ratings.column[e]);
          const double error = ratings.value[e] - mean - row(u)[bias_at] - h[bias_at] -
                               std::inner_product(h.begin() + factors_at, h.end(), row(u).begin() + factors_at, 0.0);
          expected += error * error;
        }
      }
      for (std::size_t i = 0; i < items; ++i) expected += penalty(row(users + i), counts[i]);
      std::vector<double> gradient(w.size(), 1.0);  // the gradient is added
      EXPECT_NEAR(f.value_and_gradient(w, gradient), expected, 1e-11 * expected);
      // Central differences.
      std::vector<double> unused(w.size());
      for (std::size_t j = 0; j < w.size(); ++j) {
        const double at = std::exchange(w[j], w[j] + 1e-5);
        const double above = f.value_and_gradient(w, unused);
        w[j] = at - 1e-5;
        const double below = f.value_and_gradient(w, unused);
        w[j] = at;
        EXPECT_NEAR(gradient[j] - 1, (above - below) / 2e-5, 1e-6 * std::sqrt(expected)) << j;
      }
      // Two workers: the items' part is a sum, each worker has its own users' part.
      double sum = 0;
      std::vector<double> both(w.size(), 1.0);
      const std::size_t first = 4;
      for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, first}, {first, users}}) {
        const auto own = rows_of(ratings, begin, end);
        mf_objective part(own, k, mean, 1.1, penalties, counts);
        std::vector<double> at(w.begin(), w.begin() + static_cast<std::ptrdiff_t>(f.shared()));
        const auto users_at = w.begin() + static_cast<std::ptrdiff_t>(f.shared());
        at.insert(at.end(), users_at + static_cast<std::ptrdiff_t>(begin * (k + 1)),
                  users_at + static_cast<std::ptrdiff_t>(end * (k + 1)));
        std::vector<double> slope(at.size());
        sum += part.value_and_gradient(at, slope);
        for (std::size_t j = 0; j < at.size(); ++j) both[j < f.shared() ? j : j + begin * (k + 1)] += slope[j];
      }
      EXPECT_NEAR(sum, expected, 1e-11 * expected);
      for (std::size_t j = 0; j < w.size(); ++j) EXPECT_NEAR(both[j], gradient[j], 1e-10 * std::sqrt(expected));
    }
  }
}

}  // namespace
}  // namespace paracel::alg
