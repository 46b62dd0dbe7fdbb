// SPDX-License-Identifier: BSD-3-Clause
//
// Which file a plug-in's name refers to, and whether it may be loaded: it and its folder must be owned by root or this
// user, and not be writable by others, which the user's private group (of umask 002) is not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paracel::srv {

/// The file found under a name in a folder.
struct plugin_file {
  std::string path;
  std::uint64_t content = 0;  ///< hash
  bool exists = false;
  std::string problem;  ///< why it may not be loaded; empty: it may
};

/// The file names that `plugin` may refer to, the likeliest first. For a path only the base name counts. Throws:
/// plugin_error.
std::vector<std::string> plugin_file_names(std::string_view plugin);

/// Looks up `name`, a base name, in the folder; never follows a symbolic link.
plugin_file find_plugin_file(const std::string& folder, const std::string& name);

/// The file names of the libraries in `folder` that export objects of the size of an update function, a filter or an
/// optimizer. The libraries are not loaded.
std::vector<std::string> plugins_in(const std::string& folder);

}  // namespace paracel::srv
