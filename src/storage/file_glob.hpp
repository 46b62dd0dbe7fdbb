// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace paracel::storage {

/// The files that a name refers to: a file is itself, a folder is every file below it that is not hidden, anything
/// else is a glob pattern (with `~`). Sorted by name within each; empty if nothing matches.
std::vector<std::string> expand_files(const std::string& name);

/// Whether `name` is a file or a folder, or a glob pattern (with `~`) that matches one.
bool file_exists(const std::string& name);

/// Why `folder` cannot become (or is not) a folder that this process can write into; empty when it can.
/// Creates nothing.
std::string why_not_writable(const std::string& folder);

}  // namespace paracel::storage
