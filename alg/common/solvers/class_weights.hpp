// SPDX-License-Identifier: BSD-3-Clause
//
// Weights of classes, from the key class_weight.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/settings.hpp>

namespace paracel::alg {

/// The key class_weight. "balanced" is rows / (classes * rows of the class). Thread-safety: const-concurrent
class class_weights {
 public:
  /// Throws: config_error.
  void keys(key_list& k);

  /// The weights of classes; `rows`: row counts of the classes, over all workers. Throws: config_error for an unknown
  /// class.
  [[nodiscard]] std::vector<double> of(const std::vector<std::string>& classes, std::span<const double> rows) const;
  [[nodiscard]] bool given() const noexcept { return balanced_ || !named_.empty(); }
  /// The place of the key, for error messages.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }

 private:
  bool balanced_ = false;
  std::vector<std::pair<std::string, double>> named_;  // others have 1
  std::string place_;
};

/// Multiplies the rows' weights (empty: ones) by those of their classes. `label`: the class of each row, as an index;
/// `rows`: as for class_weights::of. A collective. Throws: config_error for an unknown class, or if all become 0.
void weigh_classes(Comm comm, const class_weights& weights, const std::vector<std::string>& classes,
                   std::span<const double> rows, std::span<const double> label, std::vector<double>& weight);

}  // namespace paracel::alg
