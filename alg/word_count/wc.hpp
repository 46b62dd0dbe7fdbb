// SPDX-License-Identifier: BSD-3-Clause
//
// How often each word occurs, and the words that occur most.
//
// Each worker counts the words of its lines in a table of its own; then each word's counts meet on the worker that its
// hash names, which adds them. A word never crosses a line end, and lines are read whole, so no word is cut where one
// worker's part of the input ends and the next one's begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/schema.hpp>

#include "word_table.hpp"

namespace paracel::alg {

/// The keys of wc's config; README.md explains them.
config_schema wc_schema();

/// A config as a struct.
struct wc_settings {
  explicit wc_settings(const config& from);

  std::vector<std::string> input;
  std::string output;
  std::size_t topk;
  std::string tokens;
  std::string format;
  bool dump;
};

class word_count : public paralg {
 public:
  word_count(Comm comm, const std::string& server_info, const wc_settings& settings);

  /// Reads, counts, prints the first words and writes the results.
  /// Throws: data_error.
  void solve() override;

 private:
  void count();
  void exchange();
  void dump_result();
  void dump_words();

  wc_settings settings_;
  word_table words_;  // first those of this worker's text, then those that are its own
};

}  // namespace paracel::alg
