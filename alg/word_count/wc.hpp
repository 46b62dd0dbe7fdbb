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
#include <paracel/schema.hpp>

#include "alg/common/server_state.hpp"
#include "word_table.hpp"

namespace paracel::alg {

/// The keys of wc's config; README.md explains them.
config_schema wc_schema();

/// The config as a struct.
struct wc_settings {
  explicit wc_settings(const config& from);

  std::vector<std::string> input;
  std::string output;
  std::size_t topk;
  std::string tokens;
  std::string format;
  bool dump;
  state_plugin handle;  // its functions: the update, the filter
};

class word_count : public paralg {
 public:
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
