// SPDX-License-Identifier: BSD-3-Clause
#include "storage/file_glob.hpp"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "storage/memory_file.hpp"

namespace paracel::storage {

namespace fs = std::filesystem;

namespace {

void add_folder(const fs::path& folder, std::vector<std::string>& to) {
  std::error_code problem;
  // Folders behind symbolic links are not entered: a link to a parent would never end.
  for (fs::recursive_directory_iterator i(folder, fs::directory_options::skip_permission_denied, problem), end;
       !problem && i != end; i.increment(problem)) {
    const bool hidden = i->path().filename().native().front() == '.';
    if (hidden) {
      if (i->is_directory(problem)) i.disable_recursion_pending();
      continue;
    }
    std::error_code none;
    if (i->is_regular_file(none)) to.push_back(i->path().native());
  }
}

void add_file(const std::string& name, std::vector<std::string>& to) {
  std::error_code problem;
  if (fs::is_directory(name, problem)) {
    const auto first = static_cast<std::ptrdiff_t>(to.size());
    add_folder(name, to);
    std::sort(to.begin() + first, to.end());
  } else if (fs::exists(name, problem)) {
    to.push_back(name);
  }
}

}  // namespace

std::vector<std::string> expand_files(const std::string& name) {
  std::vector<std::string> files;
  if (name.empty() || name.find('\0') != std::string::npos) return files;
  if (find_memory_file(name) != nullptr) return {name};
  std::error_code problem;
  if (fs::exists(name, problem)) {
    add_file(name, files);
    return files;
  }
  glob_t found{};
  if (::glob(name.c_str(), GLOB_TILDE, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) add_file(found.gl_pathv[i], files);
  }
  ::globfree(&found);
  return files;
}

bool file_exists(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) return false;
  std::error_code problem;
  if (find_memory_file(name) != nullptr || fs::exists(name, problem)) return true;
  glob_t found{};
  const bool some = ::glob(name.c_str(), GLOB_TILDE, nullptr, &found) == 0 && found.gl_pathc > 0;
  ::globfree(&found);
  return some;
}

std::string why_not_writable(const std::string& folder) {
  std::error_code problem;
  fs::path p = folder.empty() ? fs::path(".") : fs::path(folder);
  if (!p.has_filename()) p = p.parent_path();  // "out/"
  if (p.empty()) p = ".";
  while (!fs::exists(fs::symlink_status(p, problem))) {
    if (problem && problem != std::errc::no_such_file_or_directory && problem != std::errc::not_a_directory) {
      return p.native() + ": " + problem.message();
    }
    p = p.has_parent_path() && p.parent_path() != p ? p.parent_path() : fs::path(".");
    if (p.empty()) p = ".";
  }
  if (!fs::is_directory(p, problem)) return p.native() + " is not a folder";
  if (::access(p.c_str(), W_OK | X_OK) != 0) return p.native() + ": " + std::strerror(errno);
  return {};
}

}  // namespace paracel::storage
