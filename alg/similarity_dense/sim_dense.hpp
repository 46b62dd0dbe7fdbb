// SPDX-License-Identifier: BSD-3-Clause
//
// The most similar rows of each row of a dense matrix by cosine similarity, or of each row of a matrix a among those of
// a matrix b.
//
// Every worker keeps the rows that it read. With one matrix each pair is computed once: pairs of a worker's rows by
// that worker; for each two workers, the first compares all its rows with the first half of the other's, the second all
// rows of the first with the second half of its own, and returns lists of k. With two matrices the rows of b are sent
// to all workers in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/solvers/top_k_neighbours.hpp"
#include "dense_kernel.hpp"

namespace paracel::alg {

struct sim_dense_settings {
  static constexpr auto program = "sim_dense";
  static constexpr auto summary = "the most similar rows for each row of a dense matrix";
  void keys(key_list& k);

  std::vector<std::string> input_a;
  std::vector<std::string> input_b;  ///< empty: one matrix
  std::string output;
  result_format output_format = result_format::text;
  bool number_rows = false;  ///< rows are identified by their number instead of their first field
  bool label = false;
  double simbar = 0;
  std::size_t topk = 20;
  entry_options::header_rule header = entry_options::header_rule::automatic;

 protected:
  void common_keys(key_list& k);
};

struct ab_sim_dense_settings : sim_dense_settings {
  static constexpr auto program = "ab_sim_dense";
  static constexpr auto summary = "the most similar rows of a dense matrix b for each row of a dense matrix a";
  void keys(key_list& k);
};

class sim_dense : public paralg {
 public:
  using settings_type = sim_dense_settings;

  sim_dense(Comm comm, const std::string& server_info, const sim_dense_settings& settings);

  /// Loads, compares and writes. Throws: data_error.
  void solve() override;

 private:
  /// This worker's rows of a matrix.
  struct matrix {
    std::vector<double> value;          // rows of length 1
    std::vector<std::uint64_t> number;  // of each row: the rank of its id among all rows
    id_list ids;                        // of all rows, ascending
  };

  matrix load(const std::vector<std::string>& files);
  void number_by_ids(const id_list& own, matrix& m);
  /// The similarity from which on a pair counts.
  [[nodiscard]] double least_similarity() const { return settings_.simbar - similarity_rounding(width_); }
  void compare();
  void compare_ab();
  void meet(std::size_t step);
  byte_vector pack_rows(const matrix& from, std::size_t& at, std::size_t end) const;
  void unpack_rows(const byte_vector& bytes, std::vector<std::uint64_t>& numbers, std::vector<double>& values) const;
  [[nodiscard]] bool any_left(bool mine);
  void dump_result();
  void dump_arrays();

  sim_dense_settings settings_;
  std::size_t width_ = 0;
  matrix a_;
  matrix b_;
  top_k_neighbours lists_;
};

/// Two matrices.
class ab_sim_dense : public sim_dense {
 public:
  using settings_type = ab_sim_dense_settings;
  using sim_dense::sim_dense;
};

}  // namespace paracel::alg
