// SPDX-License-Identifier: BSD-3-Clause
//
// The model of mf or als that a run continues: its users and items keep their factors and biases, also those that the
// new ratings do not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/id_list.hpp>
#include <paracel/types.hpp>

#include "recommend.hpp"

namespace paracel::alg {

/// Thread-safety: const-concurrent. Memory: the whole model on each worker.
class initial_factors {
 public:
  /// `k`: what the config has; `k_place`: if it is given. Throws: data_error; config_error for another k.
  initial_factors(const std::string& path, const std::string& algorithm, std::size_t k, const std::string& k_place);

  [[nodiscard]] const saved_model& head() const noexcept { return head_; }
  /// The scale of all ratings: its mean is that of the model, whose biases are differences from it.
  [[nodiscard]] rating_scale with(rating_scale of_ratings) const;
  /// Copies the row of a user or item, if the model has it, to `to`.
  void take_user(std::uint64_t key, std::span<double> to) const { users_.take(key, to); }
  void take_item(std::uint64_t key, std::span<double> to) const { items_.take(key, to); }
  /// Of the model's users or items that no worker has among `keys`, this worker's part. Collectives.
  [[nodiscard]] factor_rows other_users(Comm comm, std::span<const std::uint64_t> keys) const {
    return users_.others(std::move(comm), keys);
  }
  [[nodiscard]] factor_rows other_items(Comm comm, std::span<const std::uint64_t> keys) const {
    return items_.others(std::move(comm), keys);
  }

 private:
  struct side {
    factor_rows known;
    std::size_t width = 0;
    dict_type<std::uint64_t, std::size_t> place;  // by key

    void number();
    void take(std::uint64_t key, std::span<double> to) const;
    [[nodiscard]] factor_rows others(Comm comm, std::span<const std::uint64_t> keys) const;
  };

  saved_model head_;
  side users_;
  side items_;
};

}  // namespace paracel::alg
