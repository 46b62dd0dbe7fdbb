// SPDX-License-Identifier: BSD-3-Clause
//
// The optimisers in one process: functions with known minima, a9a, termination, rejected settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>
#include <paracel/random.hpp>

#include "test/support/paths.hpp"
#include "test/support/sanitized.hpp"
#include "worker/comm/single_comm.hpp"

namespace paracel::optim {
namespace {

using numbers = std::vector<double>;
using testing::HasSubstr;

/// 100 (y - x^2)^2 + (1 - x)^2
class rosenbrock : public objective {
 public:
  std::size_t dimension() const override { return 2; }
  double weight() const override { return 1; }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    x_ = w[0];
    y_ = w[1];
    const double a = y_ - x_ * x_;
    g[0] += -400 * x_ * a - 2 * (1 - x_);
    g[1] += 200 * a;
    return 100 * a * a + (1 - x_) * (1 - x_);
  }
  bool has_hessian() const override { return true; }
  void hessian_vector(std::span<const double> v, std::span<double> out) override {
    out[0] += (1200 * x_ * x_ - 400 * y_ + 2) * v[0] - 400 * x_ * v[1];
    out[1] += -400 * x_ * v[0] + 200 * v[1];
  }

 private:
  double x_ = 0;
  double y_ = 0;
};

/// w'Aw / 2 - b'w, with A = diag(1 ... 10) + a matrix of rank 1
class quadratic : public objective {
 public:
  explicit quadratic(std::size_t n) : n_(n), diagonal_(n), b_(n, 1.0) {
    for (std::size_t j = 0; j < n; ++j)
      diagonal_[j] = std::pow(10.0, static_cast<double>(j) / static_cast<double>(n - 1));
  }
  std::size_t dimension() const override { return n_; }
  double weight() const override { return 1; }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    numbers aw(n_);
    hessian_vector(w, aw);
    double value = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      value += w[j] * (0.5 * aw[j] - b_[j]);
      g[j] += aw[j] - b_[j];
    }
    return value;
  }
  bool has_hessian() const override { return true; }
  void hessian_vector(std::span<const double> v, std::span<double> out) override {
    double sum = 0;
    for (const double x : v) sum += x;
    for (std::size_t j = 0; j < n_; ++j) out[j] += diagonal_[j] * v[j] + sum;
  }
  const numbers& b() const { return b_; }

 private:
  std::size_t n_;
  numbers diagonal_;
  numbers b_;
};

/// A function of one coordinate, without a Hessian.
class curve : public objective {
 public:
  using point = std::pair<double, double>;
  explicit curve(std::function<point(double)> f) : f_(std::move(f)) {}
  std::size_t dimension() const override { return 1; }
  double weight() const override { return 1; }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    const auto [value, slope] = f_(w[0]);
    g[0] += slope;
    return value;
  }

 private:
  std::function<point(double)> f_;
};

settings settings_of(method m) {
  settings s;
  s.how = m;
  return s;
}

TEST(Optim, FindsTheMinimumOfRosenbrocksFunction) {
  for (const auto m : {method::lbfgs, method::owlqn, method::newton, method::cg, method::gd}) {
    SCOPED_TRACE(name_of(m));
    rosenbrock f;
    auto s = settings_of(m);
    s.start = {-1.2, 1};
    s.max_steps = m == method::gd ? 20000 : 300;
    s.gradient_tolerance = 1e-10;
    s.objective_tolerance = 0;
    const auto r = minimize(f, s);
    EXPECT_NEAR(r.w[0], 1, 1e-6);
    EXPECT_NEAR(r.w[1], 1, 1e-6);
    EXPECT_GT(r.evaluations, 0U);
  }
}

TEST(Optim, ConjugateGradientsMinimiseAQuadraticInAsManyStepsAsCoordinates) {
  const std::size_t n = 12;
  quadratic f(n);
  auto s = settings_of(method::cg);
  s.max_steps = static_cast<int>(n);
  s.gradient_tolerance = 0;
  s.objective_tolerance = 0;
  const auto r = minimize(f, s);
  EXPECT_LT(r.gradient_norm, 1e-6 * r.first_gradient_norm);

  numbers x(n);
  const auto product = [&](std::span<const double> v, std::span<double> out) {
    std::fill(out.begin(), out.end(), 0.0);
    f.hessian_vector(v, out);
  };
  EXPECT_LE(linear_cg(product, f.b(), x, 1e-7, 100), n + 1);  // one for the start
  numbers ax(n);
  product(x, ax);
  for (std::size_t j = 0; j < n; ++j) {
    EXPECT_NEAR(ax[j], 1, 1e-6);
    EXPECT_NEAR(r.w[j], x[j], 1e-5 * std::abs(x[j]));
  }
  const auto negative = [](std::span<const double> v, std::span<double> out) {
    for (std::size_t j = 0; j < v.size(); ++j) out[j] = -v[j];
  };
  numbers zero(n);
  EXPECT_THROW(linear_cg(negative, f.b(), zero, 1e-8, n), error);
}

TEST(Optim, PenaltiesAreThoseOfTheFormulaAndSkipFreeCoordinates) {
  // Least squares with orthogonal columns: each coordinate by itself, mean of (w_j - 4)^2 / 2 a row and column.
  sample_rows rows;
  rows.columns = 3;
  rows.row_count = 3;
  rows.row_begin = {0, 1, 2, 3};
  rows.column = {0, 1, 2};
  rows.value = {1, 1, 1};
  rows.label = {4, -4, 4};
  linear_objective f(rows, squared_loss(), {});
  for (const auto m : {method::owlqn, method::gd}) {
    auto s = settings_of(m);
    s.penalty = {.l1 = 0.4, .l2 = 0.25, .free = {2}};
    s.gradient_tolerance = 1e-12;
    const auto r = minimize(f, s);
    // (w - 4) / 3 + l1 + 2 l2 w = 0
    const double w = (4.0 / 3 - 0.4) / (1.0 / 3 + 0.5);
    EXPECT_NEAR(r.w[0], w, 1e-6);
    EXPECT_NEAR(r.w[1], -w, 1e-6);
    EXPECT_NEAR(r.w[2], 4, 1e-6);
    EXPECT_NEAR(r.value, 2 * ((w - 4) * (w - 4) / 6 + 0.4 * w + 0.25 * w * w), 1e-9);
    s.penalty.l1 = 2;  // above the largest gradient
    const auto none = minimize(f, s);
    EXPECT_EQ(none.w[0], 0);
    EXPECT_EQ(none.w[1], 0);
    EXPECT_NEAR(none.w[2], 4, 1e-6);
  }
}

TEST(Optim, TheLineSearchSaysThatItFindsNothing) {
  // The gradient points the wrong way.
  for (const auto m : {method::lbfgs, method::owlqn, method::gd, method::cg}) {
    curve wrong([](double x) { return curve::point{x * x, -2 * x}; });
    auto s = settings_of(m);
    s.start = {1};
    const auto r = minimize(wrong, s);
    EXPECT_EQ(r.why, ending::line_search);
    EXPECT_EQ(r.steps, 1);
    EXPECT_EQ(r.w, numbers{1});  // unchanged
    EXPECT_LT(r.evaluations, 100U);
    EXPECT_THAT(r.text(), HasSubstr("finds no step that lowers the objective at step 1"));
  }
}

TEST(Optim, ValuesThatAreNotFiniteShortenAStepOrEndWithItsNumber) {
  // A wall at 1: the first steps are beyond it.
  const auto log_barrier = [](double x) { return curve::point{-std::log(1 - x) - 50 * x, 1 / (1 - x) - 50}; };
  for (const auto m : {method::lbfgs, method::gd, method::owlqn, method::cg}) {
    curve f(log_barrier);
    EXPECT_NEAR(minimize(f, settings_of(m)).w[0], 0.98, 1e-5) << name_of(m);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto m : {method::lbfgs, method::gd, method::owlqn, method::cg}) {
    curve at_once([&](double) { return curve::point{nan, 1}; });
    curve later([&](double x) { return x == 0 ? curve::point{0, 1} : curve::point{nan, nan}; });
    try {
      minimize(at_once, settings_of(m));
      FAIL();
    } catch (const error& e) {
      EXPECT_THAT(e.what(), HasSubstr("nan at the start"));
    }
    try {
      minimize(later, settings_of(m));
      FAIL();
    } catch (const error& e) {
      EXPECT_THAT(e.what(), HasSubstr("nan at step 1"));
    }
  }
}

/// Rosenbrock's function with so many shared coordinates.
class partly_own : public rosenbrock {
 public:
  explicit partly_own(std::size_t shared) : shared_(shared) {}
  std::size_t shared() const override { return shared_; }

 private:
  std::size_t shared_;
};

TEST(Optim, CoordinatesOfSingleWorkersAreForLbfgsAndCgWithoutPenalties) {
  for (const auto m : {method::lbfgs, method::cg}) {
    for (const std::size_t shared : {0U, 1U, 2U}) {
      partly_own f(shared);
      auto s = settings_of(m);
      s.start = {-1.2, 1};
      s.gradient_tolerance = 1e-10;
      s.objective_tolerance = 0;
      const auto r = minimize(f, s);
      EXPECT_NEAR(r.w[0], 1, 1e-6);
      EXPECT_NEAR(r.w[1], 1, 1e-6);
    }
  }
  const auto refusal = [](std::size_t shared, method m, const std::function<void(settings&)>& change) {
    partly_own f(shared);
    auto s = settings_of(m);
    change(s);
    try {
      (void)minimize(f, s);
    } catch (const config_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(1, method::lbfgs, [](settings&) {}), "");
  for (const auto m : {method::gd, method::owlqn, method::newton})
    EXPECT_THAT(refusal(1, m, [](settings&) {}), HasSubstr("want cg or lbfgs"));
  const auto text = HasSubstr("cannot be combined with coordinates of single workers");
  EXPECT_THAT(refusal(1, method::lbfgs, [](settings& s) { s.penalty.l2 = 1; }), text);
  EXPECT_THAT(refusal(1, method::lbfgs, [](settings& s) { s.wide = true; }), text);
  EXPECT_THAT(refusal(1, method::lbfgs, [](settings& s) { s.reference = {0, 0}; }), text);
  EXPECT_THAT(refusal(3, method::lbfgs, [](settings&) {}), HasSubstr("shared coordinates, want at most"));
}

TEST(Optim, RefusesWhatAMethodCannotMinimise) {
  curve f([](double x) { return curve::point{x * x, 2 * x}; });
  const auto refused = [&](settings s) { EXPECT_THROW(minimize(f, s), config_error); };
  auto s = settings_of(method::lbfgs);
  s.penalty.l1 = 1;
  refused(s);
  refused(settings_of(method::newton));  // no Hessian
  refused(settings_of(method::sgd));     // no rows
  s = settings_of(method::lbfgs);
  s.start = {1, 2};
  refused(s);
  s.start = {};
  s.penalty.free = {1};
  refused(s);
  s.penalty.free = {};
  s.reference = {1, 2};
  refused(s);
  s.reference = {};
  s.penalty.l2 = -1;
  refused(s);
  EXPECT_EQ(method_of("owlqn"), method::owlqn);
  EXPECT_THROW((void)method_of("bfgs"), config_error);
}

TEST(Optim, AStartWithinTheToleranceOfAReferenceEndsTheRun) {
  const sample_rows rows = parse_samples("f", "1,10,1\n2,30,0\n3,25,1\n4,70,1\n5,10,0\n6,40,1\n7,5,0\n", {});
  for (const auto m : {method::gd, method::lbfgs, method::owlqn, method::newton, method::cg}) {
    SCOPED_TRACE(name_of(m));
    linear_objective f(rows, log_loss(), {.intercept = true});
    auto s = settings_of(m);
    s.penalty.l2 = 0.01;
    if (m == method::owlqn) s.penalty.l1 = 0.001;
    s.gradient_tolerance = 1e-5;
    s.objective_tolerance = 0;
    s.max_steps = 10000;
    const auto first = minimize(f, s);
    ASSERT_EQ(first.why, ending::gradient);
    s.start = first.w;
    s.reference = {0, 0, 0};
    const auto again = minimize(f, s);
    EXPECT_EQ(again.why, ending::gradient);
    EXPECT_EQ(again.steps, 1);
    EXPECT_EQ(again.evaluations, 2U);
    EXPECT_EQ(again.w, first.w);
    EXPECT_EQ(again.first_gradient_norm, first.first_gradient_norm);
    EXPECT_THAT(again.text(), HasSubstr("at the reference"));
    // From elsewhere the steps end where they did; without a reference the first gradient is the measure.
    s.start = {1, -1, 0.1};
    const auto other = minimize(f, s);
    EXPECT_EQ(other.why, ending::gradient);
    EXPECT_GT(other.steps, 1);
    EXPECT_LE(other.gradient_norm, 1e-5 * first.first_gradient_norm);
    s.start = first.w;
    s.reference = {};
    const auto further = minimize(f, s);
    EXPECT_TRUE(further.steps > 1 || further.why == ending::line_search) << further.text();
  }
}

TEST(Optim, AReferenceThatIsTheMinimumMeasuresNothing) {
  curve f([](double x) { return curve::point{x * x, 2 * x}; });
  auto s = settings_of(method::lbfgs);
  s.reference = {0};
  s.start = {3};
  const auto r = minimize(f, s);
  EXPECT_NEAR(r.w[0], 0, 1e-5);
  EXPECT_EQ(r.why, ending::gradient);
}

TEST(Optim, StandardizationChangesThePathAndNotTheMinimumOfAnUnpenalisedFunction) {
  sample_rows rows = parse_samples("f", "1,1000,2\n2,3000,3\n3,2500,9\n4,7000,1\n5,1000,4\n",
                                   {.label = sample_options::label_rule::real});
  linear_objective plain(rows, squared_loss(), {.intercept = true});
  linear_options options{.intercept = true};
  options.standardize = standardization(Comm(std::make_shared<single_comm>()), rows, 2, {}, true);
  linear_objective scaled(rows, squared_loss(), options);
  auto s = settings_of(method::newton);
  s.gradient_tolerance = 1e-12;
  const auto a = minimize(plain, s);
  const auto b = minimize(scaled, s);
  EXPECT_NEAR(a.value, b.value, 1e-9);
  const auto w = scaled.raw_weights(b.w);
  for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(a.w[j], w[j], 1e-6 * (1 + std::abs(w[j])));
}

/// 1/2 |w|^2, or |w|_1, + C * the sum of the log losses.
class A9a : public testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("PARACEL_TEST_DATA");
    const auto folder = given != nullptr ? std::filesystem::path(given)
                                         : std::filesystem::path(test::source_folder()).parent_path() / "shared/data";
    const auto file = folder / "a9a/a9a";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
    rows_ = read_samples({file.string()});
  }
  /// Evaluations and steps until the relative gap to `optimum`.
  std::pair<double, int> until(settings s, double optimum, double gap) {
    linear_objective f(rows_, log_loss(), {});
    std::pair<double, int> found{-1, -1};
    s.gradient_tolerance = 1e-12;
    const double scale = s.scale > 0 ? 1 : static_cast<double>(rows_.rows());
    struct reached {};
    s.watch = [&](const progress& p) {
      if (scale * p.value > optimum * (1 + gap)) return;
      found = {p.evaluations, p.step};
      throw reached();
    };
    try {
      minimize(f, s);
    } catch (const reached&) {
    }
    return found;
  }
  settings l2_settings(method m, int steps) {
    auto s = settings_of(m);
    s.scale = 1;
    s.penalty.l2 = 0.5;
    s.max_steps = steps;
    return s;
  }
  sample_rows rows_;
  static constexpr double optimum = 10529.5626;
};

TEST_F(A9a, NewtonReachesTheOptimumInFifteenSteps) {
  const auto [evaluations, steps] = until(l2_settings(method::newton, 15), optimum, 1e-8);
  EXPECT_GT(steps, 0);
  // Without the sum of the Hessian, too.
  auto s = l2_settings(method::newton, 15);
  s.dense_below = 0;
  EXPECT_GT(until(s, optimum, 1e-8).second, 0);
  linear_objective f(rows_, log_loss(), {});
  s.gradient_tolerance = 1e-12;
  EXPECT_NEAR(minimize(f, s).value, 10529.5625846, 10529.5626 * 1e-10);
}

TEST_F(A9a, LbfgsNeedsAtMost40EvaluationsForAThousandthAnd160ForAMillionth) {
  const auto coarse = until(l2_settings(method::lbfgs, 60), optimum, 1e-3);
  EXPECT_GT(coarse.first, 0);
  EXPECT_LE(coarse.first, 40);
  const auto fine = until(l2_settings(method::lbfgs, 160), optimum, 1e-6);
  EXPECT_GT(fine.first, 0);
  EXPECT_LE(fine.first, 160);
}

TEST_F(A9a, GradientDescentNeedsAtMost460EvaluationsForAHundredth) {
  const auto found = until(l2_settings(method::gd, 100), optimum, 1e-2);
  EXPECT_GT(found.first, 0);
  EXPECT_LE(found.first, 460);
}

TEST_F(A9a, StochasticGradientsNeedAtMostTenPassesForAHundredth) {
  auto s = l2_settings(method::sgd, 10);
  s.scale = 0;
  s.penalty.l2 = 0.5 / static_cast<double>(rows_.rows());
  EXPECT_GT(until(s, optimum, 1e-2).second, 0);
}

TEST_F(A9a, OwlqnReachesTheOptimaWithAnL1Penalty) {
  struct bar {
    double c;
    double optimum;
    int steps;
  };
  for (const auto& b : {bar{0.01, 122.7260, 200}, bar{0.1, 1082.6167, 800}, bar{1, 10558.7234, 2000}}) {
    if (b.c == 1 && test::sanitized) continue;  // half a minute without
    auto s = settings_of(method::owlqn);
    s.scale = b.c;
    s.penalty.l1 = 1;
    s.max_steps = b.steps;
    s.objective_tolerance = 0;
    EXPECT_GT(until(s, b.optimum, 1e-6).second, 0) << b.c;
  }
}

}  // namespace
}  // namespace paracel::optim
