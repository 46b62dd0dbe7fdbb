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
#include <tuple>

#include <paracel/error.hpp>

#include "core/hex.hpp"

namespace paracel::net {

namespace {

std::atomic<std::uint64_t> key_of_this_process{0};
std::optional<curve_secret> secret_of_this_process;

constexpr std::size_t word_digits = 16;
constexpr std::size_t secret_digits = 2 * std::tuple_size_v<curve_secret>;

std::optional<curve_secret> secret_from(std::string_view digits) {
  curve_secret secret{};
  for (std::size_t at = 0; at < secret.size(); at += sizeof(std::uint64_t)) {
    const auto word = from_hex(digits.substr(2 * at, word_digits));
    if (!word) return std::nullopt;
    for (std::size_t i = 0; i < sizeof *word; ++i) secret[at + i] = static_cast<std::uint8_t>(*word >> (56 - 8 * i));
  }
  return secret;
}

}  // namespace

std::uint64_t job_key() noexcept { return key_of_this_process.load(std::memory_order_relaxed); }

void set_job_key(std::uint64_t key) noexcept { key_of_this_process.store(key, std::memory_order_relaxed); }

const std::optional<curve_secret>& job_curve_secret() noexcept { return secret_of_this_process; }

job_keys read_job_keys(const std::string& path) {
  const auto wrong = [&](const std::string& what) { return usage_error("the job's key " + path + ": " + what); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) throw wrong("cannot be opened: " + std::generic_category().message(errno));
  struct stat about {};
  std::array<char, secret_digits + 1> text{};
  const bool known = ::fstat(fd, &about) == 0;
  const auto got = ::read(fd, text.data(), text.size());
  ::close(fd);
  if (!known || !S_ISREG(about.st_mode)) throw wrong("is not a regular file");
  if (about.st_uid != ::geteuid()) throw wrong("belongs to another user (uid " + std::to_string(about.st_uid) + ")");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) throw wrong("may be read by others: want mode 0600");
  const std::string_view digits(text.data(), got < 0 ? 0 : static_cast<std::size_t>(got));
  job_keys found;
  if (const auto key = from_hex(digits)) found.key = *key;
  else if (digits.size() != secret_digits || !(found.secret = secret_from(digits)))
    throw wrong("want 16 hex digits, or 64 of an encrypted job");
  return found;
}

void take_job_key() {
  if (const char* path = std::getenv("PARACEL_JOB_KEY_FILE"); path != nullptr) {
    const auto found = read_job_keys(path);
    set_job_key(found.key);
    secret_of_this_process = found.secret;
  } else if (const char* text = std::getenv("PARACEL_JOB_KEY"); text != nullptr) {
    const auto key = from_hex(text);
    if (!key)
      throw usage_error(
          "PARACEL_JOB_KEY: want 16 hex digits; the key of an encrypted job is read from a file alone, which "
          "PARACEL_JOB_KEY_FILE names");
    set_job_key(*key);
  }
}

}  // namespace paracel::net
