// SPDX-License-Identifier: BSD-3-Clause
//
// Selection of lambda: for each of `lambdas`, the half step of als against given factors, measured on held-out ratings.
//
//     W_u = (H_u'H_u + lambda I)^-1 H_u'r_u        train and validation RMSE of w.h
//
// Pairs with an unknown side are skipped.
#pragma once

#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

struct als_validate_settings {
  static constexpr auto program = "als_validate";
  static constexpr auto summary = "chooses lambda for a half step of als";
  void keys(key_list& k);

  std::vector<std::string> rating_input;
  std::vector<std::string> factor_input;
  std::vector<std::string> validate_input;
  entry_keys entries;
  std::string output;
  bool transpose = false;
  std::vector<double> lambdas;
};

class als_validate : public paralg {
 public:
  using settings_type = als_validate_settings;

  als_validate(Comm comm, const std::string& server_info, const als_validate_settings& settings);

  /// Throws: data_error.
  void solve() override;

 private:
  als_validate_settings settings_;
  run_log log_;
};

}  // namespace paracel::alg
