// SPDX-License-Identifier: BSD-3-Clause
//
// F as the methods see it: an objective of all workers' rows, scaled, with its penalties.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/optim.hpp>

namespace paracel::optim {

/// The workers that minimise together. The base class is a single worker.
class team {
 public:
  team() = default;
  team(const team&) = delete;
  team& operator=(const team&) = delete;
  virtual ~team() = default;
  /// Element-wise over the workers, in place.
  virtual void sum(std::span<double> values);
  /// This worker's part of n elements: [first, second).
  [[nodiscard]] virtual std::pair<std::size_t, std::size_t> owned(std::size_t n) const { return {0, n}; }
  /// Completes `values`, of which each worker has its own part.
  virtual void gather(std::span<double> values);
  /// Adds the gradient of this worker's rows, and the value after it, in chunks.
  virtual void sum_chunks(objective& f, std::size_t chunks, std::span<const double> w, std::span<double> sums);
};

/// Thread-safety: none. Lifetime: all arguments of the constructor outlive it.
class problem {
 public:
  using vector_pair = std::pair<std::span<const double>, std::span<const double>>;

  /// Throws: config_error when the method cannot minimise such a function, or the settings are out of their ranges.
  problem(objective& f, const settings& s, team& with);

  [[nodiscard]] const settings& how() const noexcept { return settings_; }
  [[nodiscard]] objective& rows() noexcept { return f_; }
  [[nodiscard]] team& workers() noexcept { return team_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] double scale() const noexcept { return scale_; }
  /// The sum of the weights of all workers' rows.
  [[nodiscard]] double total_weight() const noexcept { return total_weight_; }
  /// Rows of all workers, if the objective reports them.
  [[nodiscard]] double all_rows() const noexcept { return all_rows_; }

  /// a.b over the coordinates of all workers. Cost: if there are own ones, a sum of one number.
  [[nodiscard]] double dot(std::span<const double> a, std::span<const double> b);
  /// Several such products, in one sum over the workers.
  template <std::size_t N>
  [[nodiscard]] std::array<double, N> dots(const std::array<vector_pair, N>& of) {
    std::array<double, N> out{};
    dots(of, out);
    return out;
  }
  [[nodiscard]] double norm(std::span<const double> a) { return std::sqrt(dot(a, a)); }
  /// 1 / the size of F's second derivative by each coordinate; empty: unknown, all count alike. Call it after the first
  /// evaluation, that of w. Throws: error when one is not finite. Cost: a pass over the rows, a sum of n numbers.
  [[nodiscard]] std::vector<double> inverse_curvatures(std::span<const double> w);
  /// Whether a worker has coordinates of its own.
  [[nodiscard]] bool has_own() const noexcept { return has_own_; }
  /// Coordinates that are the same at every worker; the first ones.
  [[nodiscard]] std::size_t shared() const noexcept { return shared_; }

  /// newton: whether to sum the Hessian itself.
  [[nodiscard]] bool is_dense() const noexcept { return dense_; }

  /// The smooth part of F, that is without l1, and its gradient. Not finite: too long a step.
  double evaluate(std::span<const double> w, std::span<double> gradient);
  /// Lets the objective evaluate w again, on this worker alone: the others have done so, or do the same.
  void revisit(std::span<const double> w);
  /// l1 |w|_1
  [[nodiscard]] double l1_part(std::span<const double> w) const;
  /// Adds l2 w.w's gradient; returns l2 w.w.
  double add_l2(std::span<const double> w, std::span<double> gradient) const;
  /// The subgradient of F nearest to 0; `gradient`: of the smooth part. May be in place.
  void pseudo_gradient(std::span<const double> w, std::span<const double> gradient, std::span<double> out) const;
  [[nodiscard]] bool has_l1() const noexcept { return settings_.penalty.l1 > 0; }
  [[nodiscard]] double l1_of(std::size_t j) const noexcept { return is_free(j) ? 0 : settings_.penalty.l1; }

  /// out = H v of the smooth part, at the point evaluated last.
  void hessian_vector(std::span<const double> v, std::span<double> out);
  /// False, if the objective has none.
  bool hessian_diagonal(std::span<double> out);
  /// The upper triangle of H.
  void hessian(std::vector<double>& packed);

  std::uint64_t evaluations = 0;
  std::uint64_t products = 0;

 private:
  void dots(std::span<const vector_pair> of, std::span<double> out);
  /// Adds the penalties' second derivatives.
  void add_penalty_diagonal(std::span<double> out) const;
  [[nodiscard]] bool is_free(std::size_t j) const noexcept { return !free_.empty() && free_[j] != 0; }

  objective& f_;
  const settings& settings_;
  team& team_;
  std::size_t size_;
  std::size_t shared_;
  bool has_own_ = false;
  double scale_ = 1;
  double all_rows_ = 0;
  double total_weight_ = 0;  // of all workers' rows
  bool dense_ = false;
  std::vector<char> free_;  // empty: none
  std::vector<double> sums_;
};

}  // namespace paracel::optim
