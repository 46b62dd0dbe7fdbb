// SPDX-License-Identifier: BSD-3-Clause
//
// The arithmetic of a factorization machine on a batch of samples:
//
//     m(x) = w_0 + sum_j w_j x_j + 1/2 sum_f ((sum_j v_jf x_j)^2 - sum_j v_jf^2 x_j^2)
//     dm/dw_j = x_j      dm/dv_jf = x_j (sum_l v_lf x_l - v_jf x_j)
//
// A model row is the k + 1 numbers of a feature: w_j, v_j1, ..., v_jk. That of the bias has w_0 and factors that are
// not used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/samples.hpp>

namespace paracel::alg {

enum class fm_loss {
  squared,  ///< (m - y)^2 / 2
  log,      ///< log(1 + exp(-y m)), y = -1 or +1
};

/// Samples with their features renumbered: slot s of the batch is the model row ids[s], each once.
struct fm_batch {
  std::vector<std::uint64_t> ids;  ///< of model rows: 0 is the bias, first if there is one, j + 1 is feature j
  std::vector<std::size_t> begin;  ///< sample i is [begin[i], begin[i + 1]) of slot and value
  std::vector<std::uint32_t> slot;
  std::vector<double> value;
  std::vector<double> label;   ///< squared: the target; log: -1 or +1; empty without labels
  std::vector<double> weight;  ///< one a sample
  bool bias = false;

  [[nodiscard]] std::size_t rows() const noexcept { return begin.size() - 1; }
};

/// Builds batches of samples. Lifetime: the samples and their weights must outlive it. Thread-safety: none.
class fm_batcher {
 public:
  /// `weights`: empty for ones. `classes`: labels are 0 and 1 and become -1 and +1.
  fm_batcher(const sample_rows& samples, std::span<const double> weights, bool bias, bool classes);
  /// The samples with these numbers. Entries that are 0 are left out. Cost: O(their entries).
  void cut(std::span<const std::uint32_t> rows, fm_batch& into);
  /// The samples first, first + 1, ..., last - 1.
  void cut(std::size_t first, std::size_t last, fm_batch& into);

 private:
  void add(std::size_t row, fm_batch& into);
  void begin(fm_batch& into) const;
  void end(const fm_batch& into);

  const sample_rows& samples_;
  std::span<const double> weights_;
  bool bias_;
  bool classes_;
  std::vector<std::uint32_t> slot_of_;  // by feature, while a batch is built
};

/// Weights of the regularisers: each sample adds weight (w/2 w_j^2 + v/2 |v_j|^2) for each of its features.
struct fm_penalty {
  double w = 0;
  double v = 0;
};

/// The machine with k factors. Shape of model and gradient: k + 1 numbers for each id of the batch.
/// Thread-safety: none, because of its buffers.
class fm_kernel {
 public:
  fm_kernel(fm_loss loss, std::size_t k, fm_penalty penalty)
      : loss_(loss), k_(k), penalty_(penalty), sum_(k), squares_(k) {}

  [[nodiscard]] std::size_t width() const noexcept { return k_ + 1; }
  /// m of sample i.
  [[nodiscard]] double margin(const fm_batch& batch, std::size_t i, std::span<const double> model);
  /// The loss of a margin.
  [[nodiscard]] double loss(double margin, double label) const noexcept;
  /// Returns: the sum of the weighted losses. Sets `gradient` to that of the batch's objective, and `curvature` (one
  /// number a slot, or empty) to an upper bound of the second derivative along the row's gradient. Cost: about 8 k
  /// operations an entry, 11 k with curvature.
  double gradient(const fm_batch& batch, std::span<const double> model, std::span<double> gradient,
                  std::span<double> curvature);
  /// The penalties of the batch.
  [[nodiscard]] double penalties(const fm_batch& batch, std::span<const double> model) const noexcept;

 private:
  [[nodiscard]] double slope(double margin, double label) const noexcept;

  fm_loss loss_;
  std::size_t k_;
  fm_penalty penalty_;
  std::vector<double> sum_;  // of v_jf x_j over j, for each f, of the sample whose margin was last computed
  std::vector<double> squares_;
};

/// The fraction of its summed gradient that each of `workers` sends for a row with this curvature (in its own batch):
/// together they move the row as far as small sequential steps would, 1 - exp(-alpha curvature workers) of the way,
/// without overshooting where a feature is in many samples. Near 1 for a feature in few.
double fm_share(double alpha, double curvature, std::size_t workers);

/// The model row before the first step: w 0, factors normal with standard deviation `sd`; a function of seed and id.
void fm_start_row(std::span<double> row, std::uint64_t seed, std::uint64_t id, double sd);

}  // namespace paracel::alg
