// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix factorization with biases by stochastic gradient descent.
//
//     r_ui ~ mean + b_u + b_i + w_u.h_i
//     e = r - prediction;   w += alpha (2 e h - beta w),  h += alpha (2 e w_old - beta h),  b += alpha (2 e - beta b)
//
// which descends sum_ratings e^2 + beta/2 (|w_u|^2 + |h_i|^2 + b_u^2 + b_i^2). A user's row lives with the worker that
// has his ratings; items are rows of a table in the servers. A round is a pass over the ratings in clocks_per_round
// pieces; for each piece a worker pulls the items in it, takes its steps on a copy, and sends what they added.
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

namespace paracel::alg {

/// The start of a row: bias 0, factors normal with mean 0. A function of seed, stream and key alone.
void start_row(std::span<double> row, std::uint64_t seed, std::uint64_t stream, std::uint64_t key, double sd);
/// Streams of start_row and of the order of the ratings.
inline constexpr std::uint64_t user_stream = 1;
inline constexpr std::uint64_t item_stream = 2;

/// The part of an item's difference that is sent after so many steps on a copy. A bias that goes 1 - exp(-2 alpha
/// steps) of its way on the copy of each of W workers would overshoot by up to W times if all that were added; their
/// parts add up to the 1 - exp(-2 alpha steps W) of one worker that takes all steps. Near 1 after few steps, at least
/// 1/W; 1 for one worker.
double item_share(double alpha, std::uint32_t steps, std::size_t workers);

/// The order in which a worker visits its ratings, and the pieces of it.
/// Thread-safety: none
class mf_order {
 public:
  /// Ratings of one piece: `column`: the items in it, local indices, each once; user run j is the ratings
  /// [run_begin[j], run_begin[j + 1]) of slot (an index into `column`) and value.
  struct piece {
    std::vector<std::uint32_t> column;
    std::vector<std::uint32_t> user;
    std::vector<std::uint32_t> run_begin;
    std::vector<std::uint32_t> slot;
    std::vector<double> value;
  };

  /// Lifetime: `ratings` outlives it.
  explicit mf_order(const sparse_rows& ratings);
  /// Puts the users, and the ratings of each, into the order of this round. Cost: O(ratings)
  void shuffle(std::uint64_t seed, std::uint64_t round);
  /// Piece `number` of `count` equal ones (by ratings; a user may be in two).
  void cut(std::size_t number, std::size_t count, piece& into);

 private:
  const sparse_rows& ratings_;
  std::vector<std::uint32_t> user_;     // users in this round's order
  std::vector<std::uint64_t> begin_;    // of each of them: where his ratings begin in entry_
  std::vector<std::uint64_t> entry_;    // ratings in this round's order
  std::vector<std::uint32_t> slot_of_;  // by column, while a piece is cut
};

config_schema mf_schema();

struct mf_settings {
  explicit mf_settings(const config& from);

  std::vector<std::string> input;
  std::string output;
  std::string format;
  std::string update_file;
  std::string update_function;
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
};

class matrix_factorization : public paralg {
 public:
  matrix_factorization(Comm comm, const std::string& server_info, const mf_settings& settings);

  /// Loads, trains, writes the model and uses it.
  /// Throws: data_error; error when the loss diverges.
  void solve() override;

 private:
  void load();
  void train();
  double train_piece();
  void collect(int newest, int settled);
  void measure();
  void write();

  mf_settings settings_;
  run_log log_;
  sparse_rows ratings_;
  rating_scale scale_;
  std::vector<double> users_;             // row_width(k) numbers each
  std::vector<std::uint64_t> item_keys_;  // of the columns
  std::optional<factor_tables> model_;    // items, and after training the users too
  mf_order::piece piece_;
  std::vector<std::uint64_t> keys_;  // of the piece's items
  std::vector<double> rows_;         // their rows
  std::vector<double> old_;
  std::vector<std::uint32_t> steps_;  // on each of them
  int rounds_done_ = 0;
  int collected_ = 0;
  double first_loss_ = 0;
};

}  // namespace paracel::alg
