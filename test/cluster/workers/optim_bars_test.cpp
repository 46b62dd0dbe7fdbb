// SPDX-License-Identifier: BSD-3-Clause
//
// What each optimiser has to reach with 1, 2 and 4 workers, and in how many evaluations: on generated rows, and on a9a
// if it exists.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>
#include <paracel/paralg.hpp>
#include <paracel/random.hpp>
#include <paracel/samples.hpp>

#include "test/support/paths.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/sanitized.hpp"

namespace paracel {
namespace {

using optim::method;
using numbers = std::vector<double>;

constexpr std::size_t worker_counts[] = {1, 2, 4};

sample_rows part_of(const sample_rows& all, std::size_t rank, std::size_t workers) {
  const auto begin = all.rows() * rank / workers;
  const auto end = all.rows() * (rank + 1) / workers;
  sample_rows part;
  part.columns = all.columns;
  part.row_count = end - begin;
  part.first_row = begin;
  for (auto i = begin; i < end; ++i) {
    part.column.insert(part.column.end(), all.columns_of(i).begin(), all.columns_of(i).end());
    part.value.insert(part.value.end(), all.values_of(i).begin(), all.values_of(i).end());
    part.row_begin.push_back(part.column.size());
    part.label.push_back(all.label[i]);
  }
  return part;
}

/// Like a9a: 12 groups of features; a row has one feature of each group, so every group sums to 1.
sample_rows generated() {
  constexpr std::uint32_t groups = 12;
  constexpr std::uint32_t of_group = 6;
  sample_rows rows;
  rows.columns = groups * of_group;
  rows.row_count = 4000;
  for (std::size_t i = 0; i < rows.row_count; ++i) {
    counter_random draw(11, 0, i);
    double margin = -1;
    for (std::uint32_t g = 0; g < groups; ++g) {
      const double u = draw.uniform();
      const auto j = g * of_group + static_cast<std::uint32_t>(u * u * of_group);  // some are rare
      rows.column.push_back(j);
      rows.value.push_back(1);
      margin += 0.4 * std::sin(2.0 * j);
    }
    rows.row_begin.push_back(rows.column.size());
    rows.label.push_back(margin + draw.normal() > 0 ? 1 : -1);
  }
  return rows;
}

struct run_of_method {
  std::vector<optim::progress> steps;
  optim::result result;
};

run_of_method run(const sample_rows& all, std::size_t workers, optim::settings s) {
  run_of_method found;
  s.gradient_tolerance = 1e-12;
  s.watch = [&](const optim::progress& p) { found.steps.push_back(p); };  // rank 0
  test::with_job(workers, [&](paralg& job) {
    const auto rows = part_of(all, job.get_worker_id(), job.get_worker_size());
    optim::linear_objective f(rows, optim::log_loss(), {});
    auto r = optim::minimize(job, f, s);
    if (job.get_worker_id() == 0) found.result = std::move(r);
  });
  return found;
}

/// The first step whose value, times `scale`, is within this relative gap of the optimum; one of 0 evaluations if none
/// is.
optim::progress first_within(const run_of_method& of, double optimum, double gap, double scale = 1) {
  for (const auto& p : of.steps)
    if (scale * p.value <= optimum * (1 + gap)) return p;
  return {};
}

/// 1/2 |w|^2 + C * the sum of the log losses, C = 1
optim::settings l2_settings(method m, int steps) {
  optim::settings s;
  s.how = m;
  s.scale = 1;
  s.penalty.l2 = 0.5;
  s.max_steps = steps;
  s.objective_tolerance = 0;
  return s;
}
/// |w|_1 + C * the sum of the log losses
optim::settings l1_settings(double c, int steps) {
  auto s = l2_settings(method::owlqn, steps);
  s.scale = c;
  s.penalty = {.l1 = 1};
  return s;
}

void check_bars(const sample_rows& rows, double optimum) {
  const auto n = static_cast<double>(rows.rows());
  for (const auto workers : worker_counts) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    const auto newton = run(rows, workers, l2_settings(method::newton, 15));
    EXPECT_NEAR(newton.result.value, optimum, 1e-8 * optimum);
    const auto best = newton.result.value;
    EXPECT_GT(first_within(newton, best, 1e-10).step, 0);
    auto products = l2_settings(method::newton, 15);
    products.dense_below = 0;
    EXPECT_NEAR(run(rows, workers, products).result.value, best, 1e-10 * best);

    const auto lbfgs = run(rows, workers, l2_settings(method::lbfgs, 150));
    const auto coarse = first_within(lbfgs, best, 1e-3);
    const auto fine = first_within(lbfgs, best, 1e-6);
    EXPECT_GT(coarse.step, 0);
    EXPECT_LE(coarse.evaluations, 40);
    EXPECT_GT(fine.step, 0);
    EXPECT_LE(fine.evaluations, 160);

    const auto gd = first_within(run(rows, workers, l2_settings(method::gd, 60)), best, 1e-2);
    EXPECT_GT(gd.step, 0);
    EXPECT_LE(gd.evaluations, 460);

    const auto cg = first_within(run(rows, workers, l2_settings(method::cg, 150)), best, 1e-6);
    EXPECT_GT(cg.step, 0);
    EXPECT_LE(cg.evaluations, 160);  // as lbfgs

    auto passes = l2_settings(method::sgd, 10);
    passes.scale = 0;
    passes.penalty.l2 = 0.5 / n;
    EXPECT_GT(first_within(run(rows, workers, passes), best, 1e-2, n).step, 0);
  }
}

TEST(OptimBars, OfGeneratedRowsAreReachedWithAnyNumberOfWorkers) {
  const auto rows = generated();
  check_bars(rows, run(rows, 1, l2_settings(method::newton, 30)).result.value);
  for (const double c : {0.01, 0.1, 1.0}) {
    const auto optimum = run(rows, 1, l1_settings(c, 3000)).result.value;
    for (const auto workers : worker_counts)
      EXPECT_GT(first_within(run(rows, workers, l1_settings(c, 300)), optimum, 1e-6).step, 0) << c << " " << workers;
  }
}

TEST(OptimBars, OfA9aAreReachedWithAnyNumberOfWorkers) {
  const char* given = std::getenv("PARACEL_TEST_DATA");
  const auto folder = given != nullptr ? std::filesystem::path(given)
                                       : std::filesystem::path(test::source_folder()).parent_path() / "shared/data";
  const auto file = folder / "a9a/a9a";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  if (test::sanitized) GTEST_SKIP() << "minutes with a sanitizer; the generated rows are not skipped";
  const auto rows = read_samples({file.string()});
  check_bars(rows, 10529.5625846);
  // C = 1 needs 2842 evaluations: unit.A9a covers it.
  for (const auto& [c, optimum, steps] : {std::tuple{0.01, 122.7260, 100}, {0.1, 1082.6167, 800}}) {
    for (const auto workers : worker_counts)
      EXPECT_GT(first_within(run(rows, workers, l1_settings(c, steps)), optimum, 1e-6).step, 0) << c << " " << workers;
  }
}

/// w'Aw / 2 - b'w with A = diag(1 ... 10) + a matrix of rank 1, of which each worker has an equal part.
class part_of_quadratic : public optim::objective {
 public:
  explicit part_of_quadratic(std::size_t workers) : share_(1.0 / static_cast<double>(workers)) {}
  static constexpr std::size_t n = 12;
  std::size_t dimension() const override { return n; }
  double weight() const override { return share_; }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    double sum = 0;
    for (const double x : w) sum += x;
    double value = 0;
    for (std::size_t j = 0; j < n; ++j) {
      const double aw = std::pow(10.0, static_cast<double>(j) / (n - 1)) * w[j] + sum;
      value += share_ * w[j] * (0.5 * aw - 1);
      g[j] += share_ * (aw - 1);
    }
    return value;
  }

 private:
  double share_;
};

TEST(OptimBars, ConjugateGradientsMinimiseAQuadraticOfSeveralWorkersInAsManyStepsAsCoordinates) {
  for (const auto workers : worker_counts) {
    test::with_job(workers, [&](paralg& job) {
      part_of_quadratic f(workers);
      optim::settings s;
      s.how = method::cg;
      s.max_steps = static_cast<int>(part_of_quadratic::n);
      s.gradient_tolerance = 0;
      s.objective_tolerance = 0;
      s.watch = [](const optim::progress&) {};
      const auto r = optim::minimize(job, f, s);
      EXPECT_LT(r.gradient_norm, 1e-6 * r.first_gradient_norm) << workers;
    });
  }
}

}  // namespace
}  // namespace paracel
