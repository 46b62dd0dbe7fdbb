// SPDX-License-Identifier: BSD-3-Clause
//
// The model that a run of gLDA continues: counts of its words in topics, which the documents of this run are added to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/id_list.hpp>

#include "alg/common/output/model_file.hpp"

namespace paracel::alg {

/// Empty without such a model. Thread-safety: const-concurrent. Memory: the whole model on each worker.
struct lda_initial {
  /// Throws: data_error.
  explicit lda_initial(const model_reader& from);
  lda_initial() = default;

  [[nodiscard]] std::size_t topics() const noexcept { return alpha.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return topics() == 0 ? 0 : counts.size() / topics(); }
  [[nodiscard]] std::span<const double> row(std::size_t i) const {
    return std::span(counts).subspan(i * topics(), topics());
  }

  std::string path;
  bool text = false;           ///< words are names and not indices
  bool online = false;         ///< the counts are expected ones
  id_list names;               ///< of the rows; empty: row i is index i + 1
  std::vector<double> counts;  ///< a row of K numbers a word
  std::vector<double> alpha;
  double beta = 0;
  std::uint64_t tokens = 0;        ///< the sum of the counts
  std::uint64_t steps = 0;         ///< online: of the learning rate
  std::vector<std::size_t> place;  ///< by word of this run: its row, or `none`
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
};

}  // namespace paracel::alg
