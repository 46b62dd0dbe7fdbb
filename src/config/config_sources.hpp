// SPDX-License-Identifier: BSD-3-Clause
//
// A config from all that it consists of: a file, the files that it includes, and keys that the command line sets.
//
//   {"include": "base.json", "rounds": 20}          also a list; names are relative to the file that includes them
//   lr --cfg_file cfg.json --set alpha=0.5          JSON, or else a text: --set output=/tmp/out
//
// A key of the including file replaces one of an included file, a later included file an earlier one, and --set both.
// Each key keeps the place where it stands.
#pragma once

#include <string>
#include <vector>

#include "config/json_document.hpp"

namespace paracel {

inline constexpr char include_key[] = "include";
inline constexpr char schema_key[] = "$schema";  // for editors; nothing else reads it

/// Reads a config; each file may have 16 MB. The keys "include" and "$schema" are not in the result. What has no object
/// at its top is returned as it is. `overrides`: texts KEY=VALUE; OUTER.INNER names a key inside an object that the
/// files have. Throws: config_error with file:line:column, or `--set: key ...`; usage_error when an override is not
/// KEY=VALUE. Cost: at most 256 files.
config_node read_config(const std::string& file, const std::vector<std::string>& overrides = {});

/// The same for a text that was read from `file`.
config_node parse_sources(const std::string& file, std::string_view text, const std::vector<std::string>& overrides);

/// A tree as JSON text, numbers as they were written.
std::string config_json(const config_node& node);

/// A key whose value differs between two configs. A key inside objects that both have is named OUTER.INNER.
struct config_change {
  std::string key;
  std::string before, now;  ///< JSON; empty: not given
};
/// Keys in the order of `before`, then those that only `now` has. The last of duplicates counts; 1 and 1.0 are equal.
std::vector<config_change> config_changes(const config_node& before, const config_node& now);

}  // namespace paracel
