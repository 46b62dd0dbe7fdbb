// SPDX-License-Identifier: BSD-3-Clause
#include "storage/memory_file.hpp"

#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "paracel/error.hpp"

namespace paracel::storage {

namespace {

constexpr std::string_view memory_prefix = "memory:";

struct registered_files {
  std::mutex access;
  std::map<std::string, std::shared_ptr<const memory_file>> by_name;
};
registered_files& registered() {
  static registered_files all;
  return all;
}

}  // namespace

void add_memory_file(const std::string& name, memory_file file) {
  if (!name.starts_with(memory_prefix)) throw error("found " + name + ", want a name that begins with memory:");
  auto& all = registered();
  const std::lock_guard lock(all.access);
  const auto added = all.by_name.emplace(name, std::make_shared<const memory_file>(std::move(file))).second;
  if (!added) throw error(name + " is in use, want another name");
}

void remove_memory_file(const std::string& name) noexcept {
  auto& all = registered();
  const std::lock_guard lock(all.access);
  all.by_name.erase(name);
}

std::shared_ptr<const memory_file> find_memory_file(const std::string& name) {
  if (!name.starts_with(memory_prefix)) return nullptr;
  auto& all = registered();
  const std::lock_guard lock(all.access);
  const auto found = all.by_name.find(name);
  return found != all.by_name.end() ? found->second : nullptr;
}

}  // namespace paracel::storage
