// SPDX-License-Identifier: BSD-3-Clause
//
// The keys that say how lines of edges, ratings and other entries are read, in all programs that read some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/schema.hpp>
#include <paracel/sparse.hpp>

namespace paracel::alg {

/// `header`, `comment` and `columns`. `fields`: what the columns are, for the help.
void add_entry_keys(config_schema& s, const std::string& fields);

struct entry_keys {
  entry_keys() = default;
  /// `value_needed`: two columns are not enough. Throws: config_error.
  explicit entry_keys(const config& from, bool value_needed = false);

  void apply(entry_options& to) const;

  entry_options::header_rule header = entry_options::header_rule::automatic;
  bool comments = true;
  std::vector<std::string> columns;
};

/// load_sparse. Throws: data_error, also for an input without entries: "found no `what`".
sparse_rows load_some(Comm comm, const std::vector<std::string>& files, const entry_options& options, const char* what);
/// Throws: data_error for it. `entries`: of all workers.
void require_some(std::uint64_t entries, const std::vector<std::string>& files, const char* what);

/// `duplicates`: what entries of the same row and column mean.
void add_duplicates_key(config_schema& s, const char* fallback);
duplicate_rule duplicates_of(const config& from);

}  // namespace paracel::alg
