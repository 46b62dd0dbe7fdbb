// SPDX-License-Identifier: BSD-3-Clause
//
// What the factor models (mf, als) do after training: predict pairs, recommend items, and evaluate both.
//
// How unknown ("cold") users and items are treated:
//   * prediction of a pair: mean + b_u + b_i + w.h, clamped; an unknown side has bias 0 and no factors;
//   * recommendation: the items of training, best score first, ties by smaller id, without those that the user rated
//     in training; an unknown user gets the items by bias; an unknown item is never recommended;
//   * quality: over the users, known or not, that have a relevant item (a held-out rating of at least `relevant`). An
//     unknown item counts as relevant although no list can contain it.
//
//     recall@n = hits / relevant items
//     NDCG@n = sum_hits 1/log2(1 + place) / sum_{p <= min(n, relevant)} 1/log2(1 + p)
//
// Source: Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002, with gains 0 and 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>
#include <paracel/table.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/result_keys.hpp"
#include "factor_kernels.hpp"

namespace paracel::alg {

/// Statistics of the ratings of all workers.
struct rating_scale {
  double mean = 0;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();

  [[nodiscard]] double clamp(double v) const noexcept { return v < least ? least : v > most ? most : v; }
  /// The greatest absolute value. With ratings.
  [[nodiscard]] double greatest() const noexcept { return std::max(std::abs(least), std::abs(most)); }
};
/// A collective. Without ratings: mean 0, no limits.
rating_scale scale_of(Comm comm, std::span<const double> ratings);

/// The best `size` of the items added: score descending, then number ascending.
class best_items {
 public:
  explicit best_items(std::size_t size) : size_(size) {}
  /// Cost: one comparison for an item that is not among the best.
  void add(double score, std::uint32_t item) {
    if (heap_.size() == size_ && (size_ == 0 || !before({score, item}, heap_.front()))) return;
    insert({score, item});
  }
  /// Best first; the object is empty afterwards.
  std::vector<std::pair<double, std::uint32_t>> take();

 private:
  using entry = std::pair<double, std::uint32_t>;
  static bool before(const entry& a, const entry& b) noexcept {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  }
  void insert(entry e);

  std::size_t size_;
  std::vector<entry> heap_;  // a heap with the worst in front
};

struct list_quality {
  double ndcg = 0;
  double recall = 0;
};
/// Quality of the first `at` items of a list, when `relevant` (ascending) and `unknown` more items are relevant.
list_quality quality_of(std::span<const std::uint32_t> list, std::span<const std::uint32_t> relevant,
                        std::size_t unknown, std::size_t at);

/// A model in the servers: one row (factor_kernels.hpp) for each user and item, under its id_list::key. Rows that were
/// never pushed are zeros.
class factor_tables {
 public:
  /// `item_update`: the optimizer that applies deltas to the rows of items.
  factor_tables(paralg& job, const std::string& name, std::size_t k, const row_optimizer& item_update = {})
      : k_(k),
        users_(job, name + "_users", row_width(k)),
        items_(job, name + "_items", row_width(k), row_init::zeros(), item_update) {}

  [[nodiscard]] std::size_t k() const noexcept { return k_; }
  [[nodiscard]] table<double>& users() noexcept { return users_; }
  [[nodiscard]] table<double>& items() noexcept { return items_; }

 private:
  std::size_t k_;
  table<double> users_;
  table<double> items_;
};

/// Errors of predicted pairs.
struct pair_errors {
  std::uint64_t pairs = 0;
  std::uint64_t unknown = 0;    ///< pairs with an unknown side
  double squares = 0;           ///< over all pairs
  double squares_of_known = 0;  ///< over pairs whose sides are both known
};
/// Predicts the entries of `pairs` in their order, into `out[e]` unless it is null. Pulls the rows and columns that it
/// needs once for each block of 2^16 entries. Not a collective.
pair_errors predict_pairs(factor_tables& model, const sparse_rows& pairs, const rating_scale& scale,
                          std::vector<double>* out = nullptr);

/// Held-out ratings at the worker that owns their user.
struct held_out_rows {
  std::vector<std::uint32_t> row;  ///< an own row of training, or `cold` (each of these is a different user)
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint64_t> item;  ///< id_list::key
  std::vector<double> value;
  static constexpr std::uint32_t cold = 0xffffffffU;
};
/// Sends each row of `test` to the worker whose range of training rows contains its id. A collective.
/// Ids are compared as text if they are numbers in one and names in the other.
held_out_rows to_owners(Comm comm, const sparse_rows& training, const sparse_rows& test);

/// Pushes rows of row_width(k) numbers, a few thousand at a time.
void push_rows(table<double>& to, std::span<const std::uint64_t> keys, std::span<const double> rows);
/// id_list::key of each id.
std::vector<std::uint64_t> keys_of(const id_list& ids);

/// The keys min_rating and max_rating.
struct rating_limits {
  /// Throws: config_error when they leave no rating.
  void keys(key_list& k);
  void apply(rating_scale& to) const {
    to.least = least.value_or(to.least);
    to.most = most.value_or(to.most);
  }

  std::optional<double> least;
  std::optional<double> most;
};

/// The keys that mf and als share for predictions and recommendations.
struct recommend_settings {
  /// Throws: config_error.
  void keys(key_list& k);

  entry_keys entries;
  std::vector<std::string> test_input;
  std::vector<std::string> predict_input;
  std::string model_input;
  initial_model initial;
  std::size_t recommend = 0;
  std::size_t ranking_at = 10;
  double relevant = -std::numeric_limits<double>::infinity();
  bool ranking = false;
};

struct recommendation {
  /// For each own row: score and item number (among all items), best first.
  std::vector<std::vector<std::pair<double, std::uint32_t>>> lists;
  /// for unknown users
  std::vector<std::pair<double, std::uint32_t>> unknown_user;
};
/// The best `top` items for each own row of `training`, whose factors are `users` (row_width(k) numbers each).
/// `items`: ids of all items, as returned by all_column_ids.
/// Cost: rows * items * k multiplications; items are pulled once, in blocks of 4096; memory for rows * top pairs.
recommendation recommend_items(factor_tables& model, const sparse_rows& training, const id_list& items,
                               std::span<const double> users, double mean, std::size_t top);

struct ranking_quality {
  std::uint64_t users = 0;
  std::uint64_t cold_users = 0;  ///< of these, users without training rows
  double ndcg = 0;
  double recall = 0;
};
/// Means over the users of all workers. A collective.
ranking_quality rank_quality(Comm comm, const recommendation& lists, const held_out_rows& test, const id_list& items,
                             std::size_t at, double relevant);

class run_log;
/// What follows training: test errors, predictions (pred_v_<rank>: user,item,prediction), lists (recommend_<rank>:
/// user, a tab, item:score|...; recommend_unknown_0) and their quality, each reported on stdout.
void use_model(paralg& job, run_log& log, factor_tables& model, const recommend_settings& settings,
               const rating_scale& scale, const sparse_rows* training, std::span<const double> users);

/// The part of a model that is written: a flag for each own user and item.
struct model_selection {
  std::vector<std::uint8_t> user_factors;
  std::vector<std::uint8_t> user_bias;
  std::vector<std::uint8_t> item_factors;
  std::vector<std::uint8_t> item_bias;
};
/// The own users and items: rows of row_width(k) numbers, and their ids.
struct model_parts {
  std::span<const double> users;
  const id_list* user_ids;
  std::span<const double> items;
  const id_list* item_ids;
  const model_selection* only = nullptr;  ///< null: everything
};
/// Writes the model: arrays W and ubias of the own users, H and ibias of the own items, miu_0, model.json. `rounds`:
/// of all runs that went on from one another; 0: not written. A collective.
void write_model(paralg& job, const std::string& algorithm, result_format format, std::size_t k,
                 const rating_scale& scale, std::uint64_t ratings, const model_parts& parts, std::uint64_t rounds = 0);

/// What write_model stored: k and the scale, on every worker.
struct saved_model {
  std::size_t k = 0;
  rating_scale scale;
  std::uint64_t rounds = 0;
};
/// Throws: data_error.
saved_model open_model(const std::string& folder, const std::string& algorithm);
/// Rows of row_width(k) numbers, and their ids.
struct factor_rows {
  id_list ids;
  std::vector<double> rows;

  /// Adds rows at the end.
  void add(const factor_rows& more);
};
/// The users or the items of a model: "W" and "ubias", or "H" and "ibias". Throws: data_error.
factor_rows read_factors(const model_reader& from, std::size_t k, const char* factors, const char* bias);
/// Rank 0 reads the rows and pushes them; returns on every worker once they are in the servers.
void serve_model(paralg& job, const std::string& folder, const std::string& algorithm, factor_tables& model);

/// Entry options of ratings: every line counts, also repeated pairs.
entry_options rating_options(const entry_keys& keys);

}  // namespace paracel::alg
