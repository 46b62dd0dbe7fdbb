// SPDX-License-Identifier: BSD-3-Clause
//
// The keys that say how lines of edges, ratings and other entries are read, in all programs that read some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

namespace paracel::alg {

/// `header`, `comment` and `columns`.
struct entry_keys {
  /// `fields`: what the columns are, for the help. `value_needed`: two columns are not enough. Throws: config_error.
  void keys(key_list& k, const std::string& fields, bool value_needed = false);

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
void duplicates_key(key_list& k, duplicate_rule& duplicates);

}  // namespace paracel::alg
