// SPDX-License-Identifier: BSD-3-Clause
//
// The k greatest singular values of a sparse matrix, and their vectors.
//
// A worker owns the rows that load_sparse gives it, and an equal share of the columns. A product with A needs the
// columns in which its rows have entries, and one with A' returns them; only those are exchanged, block by block. The
// iteration is block_krylov.hpp. With `update_file` the sums over the workers, those of products with A' too, are in
// the servers, as in Paracel 0.3, and a function of the plug-in adds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/output/server_state.hpp"
#include "block_krylov.hpp"

namespace paracel::alg {

/// A sparse matrix over the workers as an operator.
/// Lifetime: `a` must outlive it. Cost of a product with b columns: one all-to-all, 8 b bytes for each column that a
/// worker needs and does not own; none with one worker. Of A'A: twice that, and one pass over the entries.
class sparse_operator : public product_operator {
 public:
  /// A collective: one all-to-all with 8 bytes for each column needed.
  sparse_operator(Comm comm, const sparse_rows& a);

  [[nodiscard]] std::size_t rows() const override { return a_.rows(); }
  [[nodiscard]] std::size_t columns() const override { return column_first_[rank_ + 1] - column_first_[rank_]; }
  [[nodiscard]] std::uint64_t first_row() const override { return a_.row_first[rank_]; }
  [[nodiscard]] std::uint64_t first_column() const override { return column_first_[rank_]; }
  void times(const tall_block& v, tall_block& u) override;
  void transposed_times(const tall_block& u, tall_block& v) override;
  void gram_times(const tall_block& v, tall_block& w) override;
  void sum(std::span<double> values) override;
  void largest(std::span<double> values) override;
  /// From now on every sum over the workers is computed in the servers, by `function`. Lifetime: `servers` must outlive
  /// it.
  void sum_in(server_fold& servers, const std::string& function) {
    servers_ = &servers;
    function_ = function;
  }

 private:
  void fetch_columns(const tall_block& v, double* to, std::size_t stride);
  void return_columns(const double* from, std::size_t stride, std::size_t width, tall_block& v);
  void sum_own_columns(const double* from, std::size_t stride, std::size_t width, tall_block& v);

  Comm comm_;
  const sparse_rows& a_;
  std::size_t rank_;
  std::vector<std::uint64_t> column_first_;       // columns of worker w: numbers [w, w + 1)
  std::vector<std::size_t> need_first_;           // local columns of owner w: [w, w + 1)
  std::vector<std::vector<std::uint32_t>> give_;  // own columns that worker w needs
  tall_block local_;                              // a row for each local column
  std::vector<double> both_;                      // of products with A'A (gram_kernel.hpp)
  server_fold* servers_ = nullptr;
  std::string function_;
};

struct svd_settings {
  static constexpr auto program = "svd";
  static constexpr auto summary = "the greatest singular values of a sparse matrix, with their vectors";
  void keys(key_list& k);

  std::vector<std::string> input;
  std::string output;
  result_format format = result_format::text;
  load_cache_options cache;
  entry_keys entries;
  duplicate_rule duplicates = duplicate_rule::sum;
  krylov_options krylov;
  bool debug = false;
  state_plugin update;
};

class svd : public paralg {
 public:
  using settings_type = svd_settings;

  svd(Comm comm, const std::string& server_info, const svd_settings& settings);

  /// Throws: data_error.
  void solve() override;

 private:
  svd_settings settings_;
  run_log log_;
};

}  // namespace paracel::alg
