// SPDX-License-Identifier: BSD-3-Clause
//
// What fm needs to continue a model: the rows of its features, and adagrad's state, the sum of the squares of all
// gradients that a row has received. Tables do not give back an optimizer's state, so the workers add up the squares of
// what they send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>
#include <paracel/table.hpp>

#include "alg/common/output/model_file.hpp"
#include "fm_kernel.hpp"

namespace paracel::alg {

/// The squares of one worker. Thread-safety: none. Memory: 8 (k + 1) bytes for each feature of the worker's samples, 4
/// for each of all features.
class fm_squares {
 public:
  fm_squares() = default;
  /// `width`: numbers of a model row.
  fm_squares(const sample_rows& samples, bool bias, std::size_t width);

  void add(const fm_batch& batch, std::span<const double> gradients);
  /// The sums of all workers for the model rows first, first + 1, ..., last - 1. A collective.
  [[nodiscard]] std::vector<double> sum(Comm comm, std::uint64_t first, std::uint64_t last) const;
  /// Whether this worker's samples have it.
  [[nodiscard]] bool has(std::uint64_t id) const noexcept { return slot_[id] != none; }
  /// What a checkpoint keeps.
  [[nodiscard]] std::vector<double>& values() noexcept { return values_; }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  std::size_t width_ = 0;
  std::vector<std::uint32_t> slot_;  // by model row
  std::vector<double> values_;
};

/// The model that training continues; without one, no row is known. Thread-safety: const-concurrent.
struct fm_initial {
  /// Throws: data_error.
  void read(const model_reader& from);
  /// Whether a training sample had the feature: the rows of others are zeros.
  [[nodiscard]] bool knows(std::uint64_t id) const noexcept;
  /// The first row after the last one that may be known.
  [[nodiscard]] std::uint64_t end() const noexcept { return width == 0 ? 0 : rows.size() / width; }
  [[nodiscard]] std::span<const double> row(std::uint64_t id) const {
    return std::span(rows).subspan(id * width, width);
  }
  /// Pushes the known ones of these rows.
  void push(table<double>& to, std::span<const std::uint64_t> ids) const;
  /// The same with adagrad's state, whose step size is `alpha`. Rounding may change the last digits of the rows.
  void push_with_squares(table<double>& to, std::span<const std::uint64_t> ids, double alpha) const;
  /// Adds the state of row `first` and those after it.
  void add_squares(std::uint64_t first, std::span<double> to) const;

  std::size_t width = 0;
  int rounds = 0;
  std::vector<double> rows;
  std::vector<double> squares;  // as many, or empty
};

}  // namespace paracel::alg
