// SPDX-License-Identifier: BSD-3-Clause
#include "net/job_key.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <paracel/error.hpp>

#include "core/hex.hpp"

namespace paracel::net {

namespace {

std::atomic<std::uint64_t> key_of_this_process{0};

}  // namespace

std::uint64_t job_key() noexcept { return key_of_this_process.load(std::memory_order_relaxed); }

void set_job_key(std::uint64_t key) noexcept { key_of_this_process.store(key, std::memory_order_relaxed); }

std::uint64_t read_job_key(const std::string& path) {
  const auto wrong = [&](const std::string& what) { return usage_error("the job's key " + path + ": " + what); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) throw wrong("cannot be opened: " + std::generic_category().message(errno));
  struct stat about {};
  std::array<char, 17> text{};
  const bool known = ::fstat(fd, &about) == 0;
  const auto got = ::read(fd, text.data(), text.size());
  ::close(fd);
  if (!known || !S_ISREG(about.st_mode)) throw wrong("is not a regular file");
  if (about.st_uid != ::geteuid()) throw wrong("belongs to another user (uid " + std::to_string(about.st_uid) + ")");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) throw wrong("may be read by others: want mode 0600");
  const auto key = got == 16 ? from_hex(std::string_view(text.data(), 16)) : std::nullopt;
  if (!key) throw wrong("want 16 hex digits");
  return *key;
}

void take_job_key() {
  if (const char* text = std::getenv("PARACEL_JOB_KEY"); text != nullptr) {
    const auto key = from_hex(text);
    if (!key) throw usage_error("PARACEL_JOB_KEY: want 16 hex digits");
    set_job_key(*key);
  } else if (const char* path = std::getenv("PARACEL_JOB_KEY_FILE"); path != nullptr) {
    set_job_key(read_job_key(path));
  }
}

}  // namespace paracel::net
