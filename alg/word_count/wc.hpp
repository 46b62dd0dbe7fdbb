// SPDX-License-Identifier: BSD-3-Clause
//
// How often each word occurs, and the most frequent words.
//
// Each worker counts the words of its lines in its own table; then the counts of each word are sent to the worker
// selected by its hash, which adds them. With `handle_file` the counts are added in the servers, as in Paracel 0.3: in
// dictionaries under the keys key_0, key_1, ..., by a function of the plug-in, and those that its filter accepts are
// read back. Words do not span lines, and lines are never split between workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/server_state.hpp"
#include "word_table.hpp"

namespace paracel::alg {

struct wc_settings {
  static constexpr auto program = "wc";
  static constexpr auto summary = "how often each word occurs, and the words that occur most";
  void keys(key_list& k);

  std::vector<std::string> input;
  std::string output = "./wc_result/";
  std::size_t topk = 10;
  bool by_space = false;  ///< words are runs of bytes that are not white space; false: of [-A-Za-z0-9_]
  bool dump = false;
  result_format format = result_format::text;
  state_plugin handle;  // its functions: the update, the filter
};

class word_count : public paralg {
 public:
  using settings_type = wc_settings;

  word_count(Comm comm, const std::string& server_info, const wc_settings& settings);

  /// Reads, counts, prints the top words and writes the results. Throws: data_error.
  void solve() override;

 private:
  void count();
  void add_in_servers();
  void dump_result();
  void dump_words();

  wc_settings settings_;
  word_table words_;  // first those of this worker's text, then those that it owns
};

}  // namespace paracel::alg
