// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix factorization with biases, by stochastic gradient descent or by methods that minimise a smooth objective.
//
//     r_ui ~ mean + b_u + b_i + w_u.h_i
//     e = r - prediction;   w += alpha (2 e h - beta w),  h += alpha (2 e w_old - beta h),  b += alpha (2 e - beta b)
//
// which descends sum_ratings e^2 + beta/2 (|w_u|^2 + |h_i|^2 + b_u^2 + b_i^2). A user's row is kept by the worker that
// has the user's ratings; items are rows of a table in the servers. A round is a pass over the ratings in
// clocks_per_round pieces; for each piece a worker pulls its items, takes the steps on a copy, and pushes the
// differences. Factors are 32-bit or 64-bit numbers in training; results are written and used as 64-bit ones. With
// `update_file` items are values under Paracel 0.3's keys instead (mf_in_servers.hpp).
//
// `method` cg and bfgs minimise als's objective with the library's optimisers (mf_objective.hpp), in 64-bit numbers.
//
// Source: Koren, Bell, Volinsky, "Matrix factorization techniques for recommender systems", IEEE Computer 2009, with
// the step of Paracel 0.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/output/server_state.hpp"
#include "alg/common/solvers/initial_factors.hpp"
#include "alg/common/solvers/recommend.hpp"
#include "mf_in_servers.hpp"
#include "mf_objective.hpp"
#include "mf_order.hpp"

namespace paracel::alg {

/// The initial row: bias 0, factors normal with mean 0. A function of seed, stream and key alone.
void start_row(std::span<double> row, std::uint64_t seed, std::uint64_t stream, std::uint64_t key, double sd);
/// Random streams of start_row and of the order of the ratings.
inline constexpr std::uint64_t user_stream = 1;
inline constexpr std::uint64_t item_stream = 2;

/// The fraction of an item's difference that a worker sends after this many steps on its copy. Each of W workers moves
/// a bias by 1 - exp(-2 alpha steps) of its distance to the optimum, and adding W such differences would overshoot by
/// up to W times; the fractions add up to the 1 - exp(-2 alpha steps W) of one worker that takes all steps. Near 1 for
/// few steps, at least 1/W; 1 for one worker.
double item_share(double alpha, std::uint32_t steps, std::size_t workers);

enum class mf_method { sgd, cg, bfgs };

struct mf_settings {
  static constexpr auto program = "mf";
  static constexpr auto summary = "matrix factorization with biases";
  void keys(key_list& k);
  void check(const config& from);

  std::vector<std::string> input;
  std::string output;
  result_format format = result_format::text;
  mf_method method = mf_method::sgd;
  load_cache_options cache;
  std::size_t k = 80;
  int rounds = 1;
  int clocks_per_round = 10;
  double alpha = 0.005;
  double beta = 0.01;
  mf_penalties penalties{0.1, 0.05};  // of cg and bfgs
  double start = 0.1;
  double tolerance = 0;
  std::uint64_t seed = 0;
  paracel::consistency consistency;
  bool debug = false;
  bool single = true;  // factors are 32-bit numbers in training
  rating_limits limits;
  std::string k_place;  // of the key k, if it is given
  recommend_settings use;
  state_plugin update;  // its functions: for counts, for factors, for biases
  state_plugin filter;  // for the biases of users, of items; the factors of users, of items; the two counts or ""

  [[nodiscard]] bool by_sgd() const { return method == mf_method::sgd; }
  [[nodiscard]] bool counts_workers() const {
    return filter.given() && !(filter.functions[4].empty() && filter.functions[5].empty());
  }
};

class matrix_factorization : public paralg {
 public:
  using settings_type = mf_settings;

  matrix_factorization(Comm comm, const std::string& server_info, const mf_settings& settings);

  /// Loads, trains, writes the model and applies it.
  /// Throws: data_error; error when the loss diverges.
  void solve() override;

 private:
  /// This worker's part of the training. Real: of the factors, float or double.
  template <class Real>
  struct training {
    std::vector<Real> users;  // row_width(k) numbers each
    typename mf_order<Real>::piece piece;
    std::vector<Real> rows;  // of the piece's items
    std::vector<Real> old;   // rows before the steps
  };

  void load();
  void start_user(std::size_t own_user, std::span<double> row) const;
  void start_item(std::uint64_t key, std::span<double> row) const;
  [[nodiscard]] std::uint64_t rounds_before() const { return initial_ ? initial_->head().rounds : 0; }
  void watch_loss();
  template <class Real>
  void start(training<Real>& part);
  template <class Real>
  void train();
  template <class Real>
  double train_piece(const mf_order<Real>& order, training<Real>& part);
  void minimize();
  template <class Real>
  table<Real>& items();
  void choose(std::span<const std::uint32_t> columns);
  template <class Real>
  void pull(std::vector<Real>& rows);
  void collect(int newest, int settled);
  void measure();
  void write();

  mf_settings settings_;
  run_log log_;
  sparse_rows ratings_;
  rating_scale scale_;
  double spread_ = 0;                     // the standard deviation of the ratings
  std::vector<double> users_;             // after training: row_width(k) numbers each
  std::vector<std::uint64_t> item_keys_;  // of the columns
  std::optional<initial_factors> initial_;
  std::optional<factor_tables> model_;        // items in training with 64 bits; after training, if it is used, both
  std::optional<table<float>> single_items_;  // items in training with 32 bits
  std::optional<mf_in_servers> keyed_;        // items in training, in place of a table
  std::vector<std::uint64_t> keys_;           // of the items that are pulled,
  std::vector<std::string> item_ids_;         // or their ids if they are in keyed_
  std::uint64_t ratings_total_ = 0;
  int rounds_done_ = 0;
  int collected_ = 0;
  divergence_rule rule_;
  double start_loss_ = 0;
  double offset_ = 0;     // of ratings in training by sgd
  double objective_ = 0;  // of cg and bfgs
};

}  // namespace paracel::alg
