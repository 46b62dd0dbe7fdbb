// SPDX-License-Identifier: BSD-3-Clause
//
// The items of a factorisation under Paracel 0.3's keys, to which functions of a plug-in apply the deltas; and, at the
// end, its users, so that filters of a plug-in select what is written:
//
//     H_<item>          | k factors     the second function          W_<user>          | k factors
//     item_bias_<item>  | bias          the third                    usr_bias_<user>   | bias
//     rating_cnt        | number of all ratings: the first function
//     <item>_i_cnt      | number of workers that have the item: the first       <user>_u_cnt  | the same of a user
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

#include "alg/common/output/server_state.hpp"
#include "alg/common/solvers/recommend.hpp"

namespace paracel::alg {

/// Rows have row_width(k) numbers, as in a factor_tables. Thread-safety: none. Lifetime: the paralg must outlive it.
class mf_in_servers {
 public:
  mf_in_servers(paralg& job, std::size_t k, state_plugin update) : job_(job), k_(k), update_(std::move(update)) {}

  /// The number of ratings of all workers. A collective. Throws: data_error if a worker has 2^31: Paracel counts in
  /// int.
  [[nodiscard]] std::uint64_t count_ratings(std::uint64_t own);
  /// Counts this worker for its users and items. They are complete after a paracel_sync.
  void count_worker(const id_list& users, const id_list& items);
  /// The items with these ids, in that order. Cost: two requests to each shard. Consistency: that of keys.
  void push(const std::vector<std::string>& ids, std::span<const double> rows) { write("H_", "item_bias_", ids, rows); }
  void pull(const std::vector<std::string>& ids, std::span<double> rows);
  void update(const std::vector<std::string>& ids, std::span<const double> deltas);

  /// Which of the own users' and items' factors and biases the filters of `filter` accept: functions for the biases of
  /// users and of items, and the factors of users and of items, in this order. A collective.
  [[nodiscard]] model_selection select(const state_plugin& filter, const id_list& users, std::span<const double> rows,
                                       const id_list& items);
  /// The counted users and items among `ids` that a filter accepts, as lines `id<tab>workers`.
  [[nodiscard]] std::vector<std::string> user_counts(const std::string& file, const std::string& function,
                                                     const id_list& ids);
  [[nodiscard]] std::vector<std::string> item_counts(const std::string& file, const std::string& function,
                                                     const id_list& ids);

 private:
  void write(const char* factors, const char* bias, const std::vector<std::string>& ids, std::span<const double> rows);
  std::vector<std::string> counts(const std::string& file, const std::string& function, const char* suffix,
                                  const id_list& ids);

  paralg& job_;
  std::size_t k_;
  state_plugin update_;
};

}  // namespace paracel::alg
