// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string_view>

#include "dmlc/logging.h"
#include "ps/internal/utils.h"

namespace dmlc {

void write_log_line(log_level level, const char* file, int line, const std::string& text) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char time[16];
  std::strftime(time, sizeof time, "[%H:%M:%S] ", &parts);
  const std::string_view path = file;
  const auto slash = path.rfind('/');
  const char* words[] = {"", "warning: ", "error: ", "fatal: "};
  std::string all = time;
  all.append(path.substr(slash == std::string_view::npos ? 0 : slash + 1)).append(":").append(std::to_string(line));
  // LL, with which programs print results, has the severity of an error.
  all.append(": ").append(level == log_level::error ? "" : words[static_cast<int>(level)]).append(text).append("\n");
  for (std::string_view rest = all; !rest.empty();) {
    const auto n = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace dmlc

namespace ps {

const char* Environment::find(const char* name) const {
  const auto own = values_.find(name);
  return own != values_.end() ? own->second.c_str() : std::getenv(name);
}

std::shared_ptr<Environment> Environment::Shared(const std::unordered_map<std::string, std::string>* values) {
  static std::mutex mutex;
  static std::shared_ptr<Environment> one;
  const std::lock_guard lock(mutex);
  if (one == nullptr) one.reset(new Environment);
  if (values != nullptr) one->values_ = *values;
  return one;
}

int verbosity() {
  static const int level = GetEnv("PS_VERBOSE", 0);
  return level;
}

}  // namespace ps
