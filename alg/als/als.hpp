// SPDX-License-Identifier: BSD-3-Clause
//
// Factors of users and items by alternating least squares, in three forms.
//
//   explicit   sum e^2 + lambda (sum_u n_u |w_u|^2 + sum_i n_i |h_i|^2)
//                      + lambda_bias (sum_u n_u b_u^2 + sum_i n_i b_i^2),
//              e = r - mean - b_u - b_i - w.h over the ratings; without `weighted` every n is 1. A row's bias is one
//              more coordinate of its least squares: the coefficient of a feature that is always 1.
//   implicit   sum over all cells (1 + alpha r) ([r > 0] - w.h)^2 + lambda (|W|^2 + |H|^2); the cells without a rating
//              contribute H'H, which does not depend on the user.
//   one step   (factor_input given, as in Paracel 0.3) W_u = (H_u'H_u + lambda I)^-1 H_u'r_u for given factors H.
//
// Each half step is exact, so the objective never rises. A user is solved by the worker that has the user's ratings, an
// item likewise (the input is stored in both orientations); solved rows are pushed to a table in the servers, and each
// worker pulls the rows that its own side needs.
//
// Source: Zhou et al., "Large-scale parallel collaborative filtering for the Netflix prize", AAIM 2008 (weighted); Hu,
// Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008.
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

#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/solvers/initial_factors.hpp"
#include "alg/common/solvers/recommend.hpp"

namespace paracel::alg {

enum class als_form { explicit_ratings, implicit_ratings, one_step };

struct als_model {
  als_form form = als_form::explicit_ratings;
  std::size_t k = 0;
  double mean = 0;
  double lambda = 0;
  double lambda_bias = 0;
  double alpha = 0;  ///< implicit: confidence of a rating
  bool weighted = true;
  std::size_t cg_steps = 0;  ///< implicit: steps of conjugate gradients from the current row, not Cholesky; 0: exact
};

/// Contribution of one side's rows to the objective.
struct als_sums {
  double squares = 0;  ///< explicit: e^2. implicit: (1 + alpha r)(p - y)^2 - y^2 over the ratings, y being w.h
  double penalty = 0;
};

/// Solves every row of `ratings` given the rows of its columns. Shape: `others` and `own` are rows of row_width(k)
/// numbers, one for each local column and each row; `gram`: k * k numbers, sum h h' over all columns of all workers
/// (implicit only). Cost: for a row with n ratings n k^2 + k^3/3 multiplications, or n^2 k + n^3/3 when n < k/2.
als_sums als_half_step(const als_model& model, const sparse_rows& ratings, std::span<const double> others,
                       std::span<const double> gram, std::span<double> own);
/// The penalty of the current rows.
double als_penalty(const als_model& model, const sparse_rows& ratings, std::span<const double> own);
/// sum of w w' over rows: k * k numbers.
std::vector<double> factor_gram(std::size_t k, std::span<const double> rows);

struct als_settings {
  static constexpr auto program = "als";
  static constexpr auto summary = "factors of users and items by alternating least squares";
  void keys(key_list& k);
  void check(const config& from);

  std::vector<std::string> rating_input;
  std::vector<std::string> factor_input;
  std::string output;
  result_format format = result_format::text;
  load_cache_options cache;
  als_model model{.k = 32, .lambda = 0.1, .lambda_bias = 0.05, .alpha = 40};
  bool implicit = false;
  bool transpose = false;  ///< pattern smap: rows are items
  int rounds = 10;
  double start = 0.1;
  double tolerance = 0;
  std::uint64_t seed = 0;
  bool debug = false;
  rating_limits limits;
  std::string k_place;  ///< of the key k, if it is given
  std::string implicit_place;
  recommend_settings use;
};

struct factor_lines {
  std::vector<std::string> ids;
  std::vector<double> values;  ///< k each
  std::size_t k = 0;           ///< the same on every worker
};
/// Reads this worker's part of files of factors, `id<tab>factor|factor|...`. A collective.
/// Throws: data_error file:line:column, the same on every worker.
factor_lines load_factors(Comm comm, const std::vector<std::string>& files);

/// One orientation of the ratings on this worker.
struct als_role {
  sparse_rows ratings;
  std::vector<std::uint64_t> keys;  // of the own rows
  std::vector<std::uint64_t> column_keys;
  std::vector<double> own;
  std::vector<double> others;

  void prepare(std::size_t k);
};

/// Ratings and given factors, ready for half steps: shared by als with factor_input and als_validate.
class als_one_step {
 public:
  /// A collective. Throws: data_error, also when an item of the ratings has no factors.
  als_one_step(paralg& job, const entry_keys& entries, const std::vector<std::string>& rating_input,
               const std::vector<std::string>& factor_input, bool transpose);
  struct errors {
    double train_rmse = 0;
    double validate_rmse = 0;
    std::uint64_t validated = 0;
    std::uint64_t skipped = 0;  ///< pairs with an unknown side
  };
  /// Solves all rows and computes the errors, on `validate` if it is not null. A collective.
  errors solve(double lambda, const sparse_rows* validate);
  [[nodiscard]] const als_role& side() const noexcept { return side_; }
  [[nodiscard]] std::size_t k() const noexcept { return model_.k; }

 private:
  paralg& job_;
  als_model model_;
  als_role side_;
  std::optional<factor_tables> tables_;
};

class alternating_least_squares : public paralg {
 public:
  using settings_type = als_settings;

  alternating_least_squares(Comm comm, const std::string& server_info, const als_settings& settings);

  /// Loads, alternates, writes the model and applies it. Throws: data_error.
  void solve() override;

 private:
  void solve_one_step();
  void read_initial();
  void load();
  void train();
  double half_step(als_role& side, als_role& other, table<double>& from, table<double>& to);
  void write();

  als_settings settings_;
  run_log log_;
  als_model model_;
  rating_scale scale_;
  als_role users_;
  als_role items_;
  std::optional<initial_factors> initial_;
  std::optional<factor_tables> tables_;
  double user_penalty_ = 0;  // over all workers
  double item_penalty_ = 0;
};

}  // namespace paracel::alg
