// SPDX-License-Identifier: BSD-3-Clause
//
// The most similar rows of each row of a sparse matrix: cosine, Jaccard or Pearson.
//
//     cosine(a, b)  = a.b / (|a| |b|)
//     jaccard(a, b) = columns of both / columns of either
//     pearson(a, b) = the correlation of their values in the columns of both
//
// Each pair is computed once, by one worker: pairs of a worker's rows by that worker; for each two workers, the first
// compares all its rows with the first half of the other's, the second all rows of the first with the second half of
// its own, and returns the neighbours of rows that are not its own as lists of k.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/result_keys.hpp"
#include "alg/common/solvers/top_k_neighbours.hpp"
#include "sparse_kernel.hpp"

namespace paracel::alg {

struct sim_sparse_settings {
  static constexpr auto program = "sim_sparse";
  static constexpr auto summary = "the most similar rows for each row of a sparse matrix";
  void keys(key_list& k);

  std::vector<std::string> input;
  std::string output;
  result_format output_format = result_format::text;
  bool transpose = false;
  load_cache_options cache;
  entry_keys entries;
  duplicate_rule duplicates = duplicate_rule::sum;
  std::size_t topk = 10;
  double rbar = 0, rubar = 0, cbar = 0, cubar = 0;
  double weight_bar = 0;
  similarity_limits limits;
};

class sim_sparse : public paralg {
 public:
  using settings_type = sim_sparse_settings;

  sim_sparse(Comm comm, const std::string& server_info, const sim_sparse_settings& settings);

  /// Loads, filters, compares and writes. Throws: data_error.
  void solve() override;

 private:
  void load();
  std::vector<std::int64_t> column_counts();
  void compare();
  void meet(std::size_t step);
  [[nodiscard]] std::size_t half(const csr_rows& rows) const;
  byte_vector pack_rows(std::size_t& at, std::size_t end) const;
  byte_vector visit(const byte_vector& rows);
  void take_back(const byte_vector& lists);
  void dump_result();
  void dump_arrays(const id_list& ids);

  sim_sparse_settings settings_;
  sparse_rows input_;  // its ids and numbers; the entries are moved into own_
  csr_rows own_;
  std::vector<sparse_kernel> kernel_;  // one, once the rows are loaded
  std::uint64_t first_row_ = 0;
  top_k_neighbours lists_;
};

}  // namespace paracel::alg
