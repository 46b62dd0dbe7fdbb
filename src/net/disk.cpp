// SPDX-License-Identifier: BSD-3-Clause
#include "net/disk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::net {
namespace {

constexpr const char* temporary_front = ".paracel.";
constexpr const char* temporary_back = ".tmp";

[[noreturn]] void refuse(const std::string& path, const std::string& what, int reason) {
  throw error(path + ": " + what + ": " + std::generic_category().message(reason));
}

class descriptor {
 public:
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  /// An error of the write may be told only here (NFS, quotas).
  [[nodiscard]] bool close() noexcept { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

/// A file that is unlinked unless it was given its name.
class temporary_file {
 public:
  explicit temporary_file(std::string path) : path_(std::move(path)) {}
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void renamed() noexcept { path_.clear(); }

 private:
  std::string path_;
};

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Differs for every call in this process; of another process or host EEXIST tells.
std::string unique_part() {
  static std::atomic<std::uint32_t> calls{0};
  return std::to_string(::getpid()) + "." + std::to_string(calls.fetch_add(1, std::memory_order_relaxed));
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      refuse(path, "cannot be written", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

void posix_disk::write(const std::string& path, std::span<const std::byte> bytes) {
  const auto folder = folder_of(path);
  int fd = -1;
  std::string name;
  do {  // open and not mkstemp, so that the mode follows the user's umask
    name = folder + "/" + temporary_front + unique_part() + temporary_back;
    fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EEXIST);
  descriptor file(fd);
  if (file.get() < 0) refuse(path, "cannot be written", errno);
  temporary_file temporary(std::move(name));

  write_all(file.get(), bytes, path);
  if (::fsync(file.get()) != 0) refuse(path, "cannot be written", errno);
  if (!file.close()) refuse(path, "cannot be written", errno);

  descriptor above(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (above.get() < 0) refuse(folder, "cannot be opened", errno);
  if (::rename(temporary.path().c_str(), path.c_str()) != 0) refuse(path, "cannot be replaced", errno);
  temporary.renamed();
  if (::fsync(above.get()) != 0) refuse(folder, "cannot be synchronised", errno);
}

std::vector<std::byte> posix_disk::read(const std::string& path, std::size_t most_bytes) const {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) refuse(path, "cannot be opened", errno);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) refuse(path, "cannot be read", errno);
  if (S_ISDIR(about.st_mode)) refuse(path, "cannot be read", EISDIR);
  const auto expected = static_cast<std::size_t>(std::max<off_t>(about.st_size, 0));
  const auto too_long = [&] { return error(path + ": longer than " + std::to_string(most_bytes) + " bytes"); };
  if (expected > most_bytes) throw too_long();

  // a byte more than expected, so that the end is seen; a pipe or /proc has no size and is read in steps
  std::vector<std::byte> bytes(expected + 1);
  std::size_t filled = 0;
  for (;;) {
    if (filled == bytes.size()) bytes.resize(bytes.size() + std::max<std::size_t>(bytes.size(), 4096));
    const auto got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      refuse(path, "cannot be read", errno);
    }
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > most_bytes) throw too_long();
  }
  bytes.resize(filled);
  return bytes;
}

std::vector<std::string> posix_disk::list(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator i(folder, failed), end; !failed && i != end; i.increment(failed)) {
    auto name = i->path().filename().string();
    if (!(name.starts_with(temporary_front) && name.ends_with(temporary_back))) names.push_back(std::move(name));
  }
  if (failed) refuse(folder, "cannot be listed", failed.value());
  std::sort(names.begin(), names.end());
  return names;
}

void posix_disk::make_folder(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!failed && !std::filesystem::is_directory(folder, failed) && !failed) refuse(folder, "cannot be made", ENOTDIR);
  if (failed) refuse(folder, "cannot be made", failed.value());
}

bool posix_disk::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  refuse(path, "cannot be removed", errno);
}

}  // namespace paracel::net
