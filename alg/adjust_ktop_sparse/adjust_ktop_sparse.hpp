// SPDX-License-Identifier: BSD-3-Clause
//
// The best number of neighbours for each user: for every user of a list of similarities, the k for which the ratings of
// the first k neighbours predict the user's known ratings best.
//
// A worker processes the lists that it reads, and requests the ratings of those users and of their neighbours from the
// workers that own them, a batch of lists at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/samples.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/result_keys.hpp"
#include "ktop_search.hpp"

namespace paracel::alg {

struct adjust_ktop_settings {
  static constexpr auto program = "adjust_ktop_sparse";
  static constexpr auto summary = "the number of neighbours that best predicts each user's ratings";
  void keys(key_list& k);

  std::vector<std::string> rating_input;
  std::vector<std::string> sim_input;
  std::string output;
  result_format format = result_format::text;
  bool transpose = false;
  std::size_t lower_bound = 1;
  entry_keys entries;
};

/// A line of `sim_input`.
struct similarity_list {
  std::string id;
  std::vector<std::pair<std::string, double>> neighbours;
};
/// Parses a line `id<tab>id:similarity|id:similarity...`; false for a blank one. A list may be empty.
/// `fail(at, what)` throws for a malformed line.
bool parse_similarities(std::string_view line, similarity_list& out, const text_failure& fail);

class adjust_ktop : public paralg {
 public:
  using settings_type = adjust_ktop_settings;

  adjust_ktop(Comm comm, const std::string& server_info, const adjust_ktop_settings& settings);

  /// Loads, chooses and writes. Throws: data_error.
  void solve() override;

 private:
  using rating_row = std::pair<std::vector<std::uint64_t>, std::vector<double>>;

  void load();
  void choose();
  std::vector<rating_row> fetch(const std::vector<std::string>& ids);
  [[nodiscard]] std::size_t owner_of(const std::string& id) const;
  void dump_result();

  adjust_ktop_settings settings_;
  std::vector<similarity_list> lists_;
  sparse_rows ratings_;
  std::vector<std::pair<std::size_t, std::string>> first_ids_;  // workers that own rows, and the first row of each
  std::vector<ktop_choice> choices_;
  std::vector<double> sums_;  // ratings, squared error, base squared error, k, lists
};

}  // namespace paracel::alg
