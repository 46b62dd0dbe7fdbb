// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix factorization with biases by stochastic gradient descent.
//
//     r_ui ~ mean + b_u + b_i + w_u.h_i
//     e = r - prediction;   w += alpha (2 e h - beta w),  h += alpha (2 e w_old - beta h),  b += alpha (2 e - beta b)
//
// which descends sum_ratings e^2 + beta/2 (|w_u|^2 + |h_i|^2 + b_u^2 + b_i^2). A user's row is kept by the worker that
// has the user's ratings; items are rows of a table in the servers. A round is a pass over the ratings in
// clocks_per_round pieces; for each piece a worker pulls its items, takes the steps on a copy, and pushes the
// differences. With `update_file` items are values under Paracel 0.3's keys instead (mf_in_servers.hpp).
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
#include <paracel/schema.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/recommend.hpp"
#include "alg/common/run_log.hpp"
#include "alg/common/server_state.hpp"
#include "mf_in_servers.hpp"

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

/// The order in which a worker processes its ratings, and its division into pieces.
/// Thread-safety: none
class mf_order {
 public:
  /// Ratings of one piece. `column`: its items, as local indices, each once; the ratings of user run j are
  /// [run_begin[j], run_begin[j + 1]) of slot (an index into `column`) and value.
  struct piece {
    std::vector<std::uint32_t> column;
    std::vector<std::uint32_t> user;
    std::vector<std::uint32_t> run_begin;
    std::vector<std::uint32_t> slot;
    std::vector<double> value;
  };

  /// Lifetime: `ratings` must outlive it.
  explicit mf_order(const sparse_rows& ratings);
  /// Shuffles the users, and the ratings of each, for this round. Cost: O(ratings)
  void shuffle(std::uint64_t seed, std::uint64_t round);
  /// Piece `number` of `count` equal ones (by ratings; a user may be split between two).
  void cut(std::size_t number, std::size_t count, piece& into);

 private:
  const sparse_rows& ratings_;
  std::vector<std::uint32_t> user_;     // users in this round's order
  std::vector<std::uint64_t> begin_;    // of each of them: the index in entry_ of the first rating
  std::vector<std::uint64_t> entry_;    // ratings in this round's order
  std::vector<std::uint32_t> slot_of_;  // by column, while a piece is cut
};

config_schema mf_schema();

struct mf_settings {
  explicit mf_settings(const config& from);

  std::vector<std::string> input;
  std::string output;
  std::string format;
  load_cache_options cache;
  std::size_t k;
  int rounds;
  int clocks_per_round;
  double alpha;
  double beta;
  double start;
  double tolerance;
  std::uint64_t seed;
  paracel::consistency consistency;
  bool debug;
  rating_scale limits;
  recommend_settings use;
  state_plugin update;  // its functions: of counts, of factors, of biases
  state_plugin filter;  // of the biases of users, of items; of the factors of users, of items; "" or of both counts

  [[nodiscard]] bool counts_workers() const {
    return filter.given() && !(filter.functions[4].empty() && filter.functions[5].empty());
  }
};

class matrix_factorization : public paralg {
 public:
  matrix_factorization(Comm comm, const std::string& server_info, const mf_settings& settings);

  /// Loads, trains, writes the model and applies it.
  /// Throws: data_error; error when the loss diverges.
  void solve() override;

 private:
  void load();
  void train();
  double train_piece();
  void pull_piece();
  void collect(int newest, int settled);
  void measure();
  void write();

  mf_settings settings_;
  run_log log_;
  sparse_rows ratings_;
  rating_scale scale_;
  std::vector<double> users_;             // row_width(k) numbers each
  std::vector<std::uint64_t> item_keys_;  // of the columns
  std::optional<factor_tables> model_;    // items and, after training, users
  std::optional<mf_in_servers> keyed_;    // items in training, in place of the table
  mf_order::piece piece_;
  std::vector<std::uint64_t> keys_;    // of the piece's items,
  std::vector<std::string> item_ids_;  // or their ids if they are in keyed_
  std::vector<double> rows_;           // their rows
  std::vector<double> old_;
  std::vector<std::uint32_t> steps_;  // on each item
  std::uint64_t ratings_total_ = 0;
  int rounds_done_ = 0;
  int collected_ = 0;
  double first_loss_ = 0;
};

}  // namespace paracel::alg
