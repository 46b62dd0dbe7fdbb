// SPDX-License-Identifier: BSD-3-Clause
//
// A config for prun.py, which checks it against a program's schema: one parser says what is JSON, and in which words.
#pragma once

#include <string>

namespace paracel {

/// What `file` holds, as JSON: {"keys": [{"name", "line", "column", "written", "value"}, ...]} in file order, duplicates
/// included, or {"error": the words of the error} where it is no config.
std::string config_listing(const std::string& file);

}  // namespace paracel
