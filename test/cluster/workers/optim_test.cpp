// SPDX-License-Identifier: BSD-3-Clause
//
// The optimisers as jobs: one worker and several, wide and not, metrics, errors, and the Poisson regression of
// doc/optim.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>
#include <paracel/paralg.hpp>
#include <paracel/random.hpp>

#include "test/support/cluster.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::AllOf;
using testing::HasSubstr;
using numbers = std::vector<double>;

void with_workers(std::size_t workers, const std::function<void(paralg&)>& work, const std::string& output = "") {
  cluster c({.workers = workers, .servers = 1});
  c.run([&](Comm comm) {
    paralg job("", comm, output);
    work(job);
  });
}

constexpr std::size_t all_rows = 301;
constexpr std::uint32_t columns = 12;

/// Rows [begin, end) of 301; sparse.
sample_rows part(std::size_t begin, std::size_t end) {
  sample_rows rows;
  rows.columns = columns;
  rows.row_count = end - begin;
  rows.first_row = begin;
  for (std::size_t i = begin; i < end; ++i) {
    counter_random draw(5, 0, i);
    double margin = 0;
    for (std::uint32_t j = 0; j < columns; ++j) {
      if (draw.uniform() < 0.5) continue;
      rows.column.push_back(j);
      rows.value.push_back(draw.normal());
      margin += rows.value.back() * (j % 3 == 0 ? 1 : -0.2);
    }
    rows.row_begin.push_back(rows.column.size());
    rows.label.push_back(margin + draw.normal() > 0 ? 1 : -1);
  }
  return rows;
}

sample_rows dense_of(const sample_rows& sparse) {
  sample_rows rows = sparse;
  rows.dense = true;
  rows.value.assign(rows.rows() * columns, 0);
  for (std::size_t i = 0; i < rows.rows(); ++i)
    for (std::size_t k = sparse.row_begin[i]; k < sparse.row_begin[i + 1]; ++k)
      rows.value[i * columns + sparse.column[k]] = sparse.value[k];
  rows.row_begin = {0};
  rows.column.clear();
  return rows;
}

/// The rows of a worker; of three or more the last one has none.
sample_rows part_of(const paralg& job) {
  const auto p = job.get_worker_size();
  const auto r = job.get_worker_id();
  const auto shares = p > 2 ? p - 1 : p;
  if (r >= shares) return part(all_rows, all_rows);
  return part(all_rows * r / shares, all_rows * (r + 1) / shares);
}

optim::settings settings_of(optim::method m) {
  optim::settings s;
  s.how = m;
  s.penalty.l2 = 0.01;
  if (m == optim::method::owlqn || m == optim::method::gd) s.penalty.l1 = 0.02;
  s.gradient_tolerance = 1e-9;
  if (m == optim::method::sgd) s.max_steps = 3;
  s.watch = [](const optim::progress&) {};
  return s;
}

/// A linear objective whose chunks take a while.
class late_objective : public optim::objective {
 public:
  late_objective(const sample_rows& rows, std::vector<double> weights, int ms)
      : of_(rows, optim::log_loss(), {.intercept = true, .row_weights = std::move(weights)}), pause_(ms) {}
  std::size_t dimension() const override { return of_.dimension(); }
  double weight() const override { return of_.weight(); }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    return of_.value_and_gradient(w, g);
  }
  std::size_t rows() const override { return of_.rows(); }
  bool has_chunks() const override { return true; }
  double range_value_and_gradient(std::size_t begin, std::size_t end, std::span<const double> w,
                                  std::span<double> g) override {
    std::this_thread::sleep_for(pause_);
    return of_.range_value_and_gradient(begin, end, w, g);
  }
  std::vector<std::byte> pack_rows(std::size_t begin, std::size_t end) const override {
    return of_.pack_rows(begin, end);
  }
  std::shared_ptr<const void> unpack_rows(std::span<const std::byte> packed) const override {
    return of_.unpack_rows(packed);
  }
  double packed_value_and_gradient(const void* rows, std::span<const double> w, std::span<double> g) override {
    ++packed;
    std::this_thread::sleep_for(pause_);
    return of_.packed_value_and_gradient(rows, w, g);
  }
  static inline std::atomic<int> packed{0};

 private:
  optim::linear_objective of_;
  std::chrono::milliseconds pause_;
};

TEST(OptimJob, ChunksOfLateWorkersAreTakenOverAndTheResultKeepsItsBits) {
  using optim::method;
  for (const bool dense : {false, true}) {
    for (const auto m : {method::gd, method::lbfgs, method::owlqn}) {
      SCOPED_TRACE(optim::name_of(m));
      for (const std::size_t workers : {1U, 2U, 4U}) {
        std::mutex mutex;
        std::vector<numbers> found;
        late_objective::packed = 0;
        with_workers(workers, [&](paralg& job) {
          auto own = part_of(job);
          if (dense) own = dense_of(own);
          numbers weights(own.rows());
          for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + 0.1 * static_cast<double>(i % 7);
          for (const bool stealing : {false, true}) {
            late_objective f(own, weights, stealing && job.get_worker_id() == 0 ? 3 : 0);
            auto s = settings_of(m);
            s.max_steps = 4;
            s.chunks = 13;
            s.work_stealing = stealing;
            auto w = optim::minimize(job, f, s).w;
            if (workers == 1) {
              EXPECT_EQ(w, optim::minimize(f, s).w);
            }
            const std::lock_guard lock(mutex);
            found.push_back(std::move(w));
          }
        });
        for (const auto& w : found) EXPECT_EQ(w, found[0]);
        EXPECT_EQ(late_objective::packed > 0, workers > 1);
      }
    }
  }
  const auto rows = part(0, 20);
  optim::linear_objective f(rows, optim::log_loss(), {});
  auto s = settings_of(method::newton);
  s.chunks = 4;
  EXPECT_THROW((void)optim::minimize(f, s), config_error);
  s.how = method::lbfgs;
  s.chunks = 0;
  s.work_stealing = true;
  EXPECT_THROW((void)optim::minimize(f, s), config_error);
}

TEST(OptimJob, OneWorkerAndSeveralFindTheSame) {
  using optim::method;
  for (const auto m : {method::gd, method::sgd, method::lbfgs, method::owlqn, method::newton, method::cg}) {
    SCOPED_TRACE(optim::name_of(m));
    const auto rows = part(0, all_rows);
    optim::linear_objective whole(rows, optim::log_loss(), {});
    const auto alone = optim::minimize(whole, settings_of(m));
    for (const std::size_t workers : {1U, 2U, 4U}) {
      for (const bool wide : {false, true}) {
        if (wide && m != method::lbfgs && m != method::owlqn) continue;
        std::mutex mutex;
        std::vector<optim::result> results;
        with_workers(workers, [&](paralg& job) {
          const auto own = part_of(job);
          optim::linear_objective f(own, optim::log_loss(), {});
          auto s = settings_of(m);
          s.wide = wide;
          auto r = optim::minimize(job, f, s);
          const std::lock_guard lock(mutex);
          results.push_back(std::move(r));
        });
        ASSERT_EQ(results.size(), workers);
        for (const auto& r : results) {
          EXPECT_EQ(r.w, results[0].w);  // the same bits
          EXPECT_EQ(r.why, results[0].why);
          EXPECT_NEAR(r.value, alone.value, 1e-9 * alone.value);
          for (std::size_t j = 0; j < columns; ++j) EXPECT_NEAR(r.w[j], alone.w[j], 1e-5) << workers;
        }
        if (workers == 1) {
          EXPECT_EQ(results[0].w, alone.w);
        }
      }
    }
  }
}

TEST(OptimJob, WritesALineOfMetricsAStep) {
  const test::temporary_folder folder;
  int steps = 0;
  with_workers(
      2,
      [&](paralg& job) {
        const auto own = part_of(job);
        optim::linear_objective f(own, optim::log_loss(), {});
        auto s = settings_of(optim::method::lbfgs);
        s.watch = {};
        const auto r = optim::minimize(job, f, s);
        if (job.get_worker_id() == 0) steps = r.steps;
      },
      folder.path());
  std::ifstream in(folder.path() + "/metrics.jsonl");
  std::string text;
  int lines = 0;
  double last = 1e300;
  while (std::getline(in, text)) {
    const auto line = nlohmann::json::parse(text);
    EXPECT_EQ(line["round"], ++lines);
    EXPECT_LE(line["objective"].get<double>(), last);
    last = line["objective"];
    EXPECT_GT(line["evaluations"].get<double>(), 0);
  }
  EXPECT_EQ(lines, steps);
}

/// A linear objective whose values become NaN after a number of evaluations.
class nan_later : public optim::objective {
 public:
  nan_later(const sample_rows& rows, int good) : of_(rows, optim::log_loss(), {}), good_(good) {}
  std::size_t dimension() const override { return of_.dimension(); }
  double weight() const override { return of_.weight(); }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    return value(of_.value_and_gradient(w, g));
  }
  bool has_hessian() const override { return true; }
  void hessian_vector(std::span<const double> v, std::span<double> out) override { of_.hessian_vector(v, out); }
  std::size_t rows() const override { return of_.rows(); }
  std::uint64_t first_row() const override { return of_.first_row(); }
  double rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                 std::span<double> g) override {
    return value(of_.rows_value_and_gradient(rows, w, g));
  }

 private:
  double value(double v) { return good_-- > 0 ? v : std::nan(""); }
  optim::linear_objective of_;
  int good_;
};

TEST(OptimJob, AValueOfOneWorkerThatIsNotANumberIsTheSameErrorAtAll) {
  using optim::method;
  for (const auto m : {method::gd, method::sgd, method::lbfgs, method::owlqn, method::newton, method::cg}) {
    for (const int good : {0, 3}) {
      SCOPED_TRACE(optim::name_of(m));
      const auto texts = test::texts_of_job(3, [&](paralg& job) {
        const auto own = part_of(job);
        nan_later f(own, job.get_worker_id() == 1 ? good : 1'000'000);
        auto s = settings_of(m);
        s.objective_tolerance = 0;
        optim::minimize(job, f, s);
      });
      test::expect_one_text(texts,
                            AllOf(HasSubstr(std::string(optim::name_of(m)) + ": the objective or its gradient is"),
                                  HasSubstr(good == 0 ? "nan at the start" : "nan at step")));
    }
  }
}

/// Robust regression with an intercept for each group of five rows; groups are workers' own coordinates.
class grouped_regression : public optim::objective {
 public:
  /// Groups [begin, end).
  grouped_regression(std::size_t begin, std::size_t end) : begin_(begin), end_(end) {}
  static constexpr std::size_t slopes = 3;
  static constexpr std::size_t groups = 12;
  std::size_t dimension() const override { return slopes + end_ - begin_; }
  std::size_t shared() const override { return slopes; }
  double weight() const override { return 5.0 * static_cast<double>(groups); }
  double value_and_gradient(std::span<const double> w, std::span<double> g) override {
    double sum = 0;
    for (std::size_t i = 5 * begin_; i < 5 * end_; ++i) {
      counter_random draw(9, 0, i);
      const auto group = slopes + i / 5 - begin_;
      double e = -w[group] + static_cast<double>(i / 5) + draw.normal();
      double x[slopes];
      for (std::size_t j = 0; j < slopes; ++j) e += (static_cast<double>(j) - w[j]) * (x[j] = draw.normal());
      const double root = std::sqrt(1 + e * e);
      sum += root + 0.01 * w[group] * w[group];
      g[group] += 0.02 * w[group] - e / root;
      for (std::size_t j = 0; j < slopes; ++j) g[j] -= e / root * x[j];
    }
    return sum;
  }

 private:
  std::size_t begin_;
  std::size_t end_;
};

TEST(OptimJob, CoordinatesOfSingleWorkersStayThereAndTheMinimumIsTheSame) {
  for (const auto m : {optim::method::cg, optim::method::lbfgs}) {
    SCOPED_TRACE(optim::name_of(m));
    auto s = settings_of(m);
    s.penalty = {};
    s.scale = 1;
    s.start.assign(grouped_regression::slopes + grouped_regression::groups, 0.5);
    for (std::size_t j = 0; j < s.start.size(); ++j) s.start[j] *= static_cast<double>(j);
    grouped_regression whole(0, grouped_regression::groups);
    const auto alone = optim::minimize(whole, s);
    for (const std::size_t workers : {1U, 2U, 4U}) {
      with_workers(workers, [&](paralg& job) {
        // Of four workers the last one has no coordinate of its own.
        const auto parts = workers == 4 ? 3 : workers;
        const auto begin = std::min(parts, job.get_worker_id()) * grouped_regression::groups / parts;
        const auto end = std::min(parts, job.get_worker_id() + 1) * grouped_regression::groups / parts;
        grouped_regression f(begin, end);
        auto own = s;
        const auto at = own.start.begin() + grouped_regression::slopes;
        own.start.erase(at + static_cast<std::ptrdiff_t>(end), own.start.end());
        own.start.erase(at, at + static_cast<std::ptrdiff_t>(begin));
        const auto found = optim::minimize(job, f, own);
        EXPECT_NEAR(found.value, alone.value, 1e-9 * alone.value);
        ASSERT_EQ(found.w.size(), f.dimension());
        for (std::size_t j = 0; j < found.w.size(); ++j)
          EXPECT_NEAR(found.w[j], alone.w[j < grouped_regression::slopes ? j : j + begin], 1e-5) << workers;
        if (workers == 1) {
          EXPECT_EQ(found.w, alone.w);
        }
      });
    }
  }
}

// ---- doc/optim.md's example

struct observation {
  double hours;  // of exposure
  double size;
  double count;
};

// poisson regression begins
class poisson_regression : public optim::objective {
 public:
  explicit poisson_regression(std::vector<observation> rows) : rows_(std::move(rows)) {}
  std::size_t dimension() const override { return 2; }
  double weight() const override { return static_cast<double>(rows_.size()); }

  // Counts with mean hours * exp(w0 + w1 size); minus the log-likelihood, without what does not depend on w.
  double value_and_gradient(std::span<const double> w, std::span<double> gradient) override {
    double sum = 0;
    for (const auto& r : rows_) {
      const double mean = r.hours * std::exp(w[0] + w[1] * r.size);
      sum += mean - r.count * std::log(mean);
      gradient[0] += mean - r.count;
      gradient[1] += (mean - r.count) * r.size;
    }
    return sum;
  }

 private:
  std::vector<observation> rows_;
};

optim::result fit(paralg& job, std::vector<observation> rows) {
  poisson_regression f(std::move(rows));
  optim::settings s;
  s.how = optim::method::lbfgs;
  s.gradient_tolerance = 1e-8;
  return optim::minimize(job, f, s);
}
// poisson regression ends

TEST(OptimJob, FitsThePoissonRegressionOfTheDocumentation) {
  with_workers(3, [](paralg& job) {
    // Counts that are exactly their means: the maximum likelihood is at the coefficients that generated them.
    std::vector<observation> rows;
    for (std::size_t i = job.get_worker_id(); i < 50; i += job.get_worker_size()) {
      const double hours = 1 + static_cast<double>(i % 7);
      const double size = static_cast<double>(i) / 25 - 1;
      rows.push_back({hours, size, hours * std::exp(0.3 - 1.2 * size)});
    }
    const auto found = fit(job, std::move(rows));
    EXPECT_NEAR(found.w[0], 0.3, 1e-6);
    EXPECT_NEAR(found.w[1], -1.2, 1e-6);
    EXPECT_EQ(found.why, optim::ending::gradient);
  });
}

}  // namespace
}  // namespace paracel
