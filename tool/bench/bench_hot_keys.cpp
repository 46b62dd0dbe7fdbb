// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix factorization whose rows and columns are asked for unevenly: one worker of hot_keys.py, a program for prun.py.
//
// AdaPM's synthetic data (Renz-Wieland et al., "Good Intentions: Adaptive Parameter Management via Intent Signaling",
// 2022): a matrix of 100,000 x 10,000 with 10 million revealed cells, whose rows and columns are drawn from Zipf
// distributions with exponent 1.1, and SGD on cells in random order. Here with rank 16, and the factors of a row or a
// column are the value of a key. A worker reads the factors of --batch cells, and adds its steps; with --staleness they
// come from the worker's cache while they are fresh enough, and the steps of a clock are summed before they are sent.
//
// The keys of a step are read in one message a server, with --staleness those that are not fresh in the cache.
//
// Prints, by worker 0, one line of JSON an epoch: {"epoch","seconds","loss"}.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/random.hpp>
#include <paracel/run.hpp>

DEFINE_uint64(rows, 100'000, "rows of the matrix");
DEFINE_uint64(columns, 10'000, "columns");
DEFINE_uint64(cells, 10'000'000, "revealed cells, of all workers");
DEFINE_double(skew, 1.1, "exponent of the Zipf distributions; 0: uniform");
DEFINE_uint64(rank, 16, "factors");
DEFINE_uint64(batch, 8, "cells of a step");
DEFINE_uint64(clocks, 0, "clocks of an epoch, with --staleness; 0: 100");
DEFINE_int32(staleness, -1, "of ssp, with caches; -1: asp, without");
DEFINE_int32(epochs, 3, "epochs");
DEFINE_double(alpha, 0.01, "step size");

namespace {

using vector = std::vector<float>;

/// Numbers 0 to n - 1, the one of rank k in proportion to 1 / (k + 1)^a; ranks are not in the order of numbers.
class zipf {
 public:
  zipf(std::size_t n, double a) {
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k) sums_.push_back(sum += std::pow(static_cast<double>(k + 1), -a));
  }
  std::size_t draw(paracel::counter_random& random) const {
    const auto at = std::ranges::upper_bound(sums_, random.uniform() * sums_.back());
    return std::min(sums_.size() - 1, static_cast<std::size_t>(at - sums_.begin()));
  }

 private:
  std::vector<double> sums_;
};

class factorization : public paracel::paralg {
 public:
  factorization() : paralg("", paracel::Comm(), "", 1 << 30, std::max(FLAGS_staleness, 0), FLAGS_staleness >= 0) {
    const zipf of_rows(FLAGS_rows, FLAGS_skew), of_columns(FLAGS_columns, FLAGS_skew);
    const auto mine = FLAGS_cells / get_worker_size();
    for (std::uint64_t i = 0; i < mine; ++i) {
      paracel::counter_random random(11, get_worker_id(), i);
      const auto r = of_rows.draw(random), c = of_columns.draw(random);
      cells_.push_back({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(c),
                        static_cast<float>(truth(r, 1) * truth(c, 2) + 0.1 * random.normal())});
    }
  }

  void solve() override {
    write_factors();
    paracel_sync();
    const auto steps = (cells_.size() + FLAGS_batch - 1) / FLAGS_batch;
    const auto clocks = FLAGS_clocks != 0 ? FLAGS_clocks : 100;
    for (int epoch = 1; epoch <= FLAGS_epochs; ++epoch) {
      const auto begin = std::chrono::steady_clock::now();
      double loss = 0;
      std::size_t clock = 1;
      for (std::size_t s = 0; s < steps; ++s) {
        loss += step(s * FLAGS_batch, std::min(cells_.size(), (s + 1) * FLAGS_batch));
        if (s + 1 != steps * clock / clocks) continue;
        iter_commit();
        ++clock;
      }
      std::vector<double> sums{loss, static_cast<double>(cells_.size())};
      paracel_sync();
      const std::chrono::duration<double> lasts = std::chrono::steady_clock::now() - begin;
      get_comm().allreduce(sums);
      if (get_worker_id() != 0) continue;
      std::printf("{\"epoch\": %d, \"seconds\": %.4f, \"loss\": %.6f}\n", epoch, lasts.count(), sums[0] / sums[1]);
      std::fflush(stdout);
      report_progress({epoch, FLAGS_epochs, sums[0] / sums[1]});
    }
  }

 private:
  struct cell {
    std::uint32_t row;
    std::uint32_t column;
    float value;
  };

  static double truth(std::size_t number, std::uint64_t stream) {
    return paracel::counter_random(3, stream, number).normal();
  }
  static std::string row_key(std::size_t r) { return std::string("r").append(std::to_string(r)); }
  static std::string column_key(std::size_t c) { return std::string("c").append(std::to_string(c)); }

  void write_factors() {
    constexpr std::size_t at_once = 1000;
    paracel::dict_type<std::string, vector> some;
    const auto all = FLAGS_rows + FLAGS_columns;
    for (auto i = get_worker_id(); i < all; i += get_worker_size()) {
      paracel::counter_random random(5, 0, i);
      vector v(FLAGS_rank);
      for (auto& x : v) x = static_cast<float>(0.3 * random.normal());
      some.emplace(i < FLAGS_rows ? row_key(i) : column_key(i - FLAGS_rows), std::move(v));
      if (some.size() < at_once && i + get_worker_size() < all) continue;
      paracel_write_multi(some);
      some.clear();
    }
  }

  /// Returns: the squared errors of these cells.
  double step(std::size_t first, std::size_t end) {
    names_.clear();
    place_.clear();
    const auto place = [&](std::string name) {
      const auto [at, fresh] = place_.try_emplace(std::move(name), names_.size());
      if (fresh) names_.push_back(at->first);
      return at->second;
    };
    std::vector<std::pair<std::size_t, std::size_t>> at;
    for (auto i = first; i < end; ++i)
      at.emplace_back(place(row_key(cells_[i].row)), place(column_key(cells_[i].column)));
    paracel_read_multi_async(names_, values_).get();
    deltas_.assign(names_.size(), vector(FLAGS_rank));
    double loss = 0;
    for (auto i = first; i < end; ++i) {
      const auto [r, c] = at[i - first];
      const auto &w = values_[r], &h = values_[c];
      float dot = 0;
      for (std::size_t k = 0; k < FLAGS_rank; ++k) dot += w[k] * h[k];
      const float e = cells_[i].value - dot;
      loss += static_cast<double>(e) * e;
      // Hot rows get many steps at once: they are kept small.
      const auto g = static_cast<float>(FLAGS_alpha) * std::clamp(e, -1.0F, 1.0F);
      for (std::size_t k = 0; k < FLAGS_rank; ++k) {
        deltas_[r][k] += g * h[k];
        deltas_[c][k] += g * w[k];
      }
    }
    update();
    return loss;
  }

  /// With caches they are summed until the clock ends.
  void update() {
    if (FLAGS_staleness < 0) return void(paracel_update_multi_async(names_, deltas_));
    for (std::size_t i = 0; i < names_.size(); ++i) paracel_update(names_[i], deltas_[i]);
  }

  std::vector<cell> cells_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> place_;
  std::vector<vector> values_, deltas_;
};

}  // namespace

int main(int argc, char** argv) {
  gflags::AllowCommandLineReparsing();
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return paracel::run(argc, argv, [] { factorization().solve(); });
}
