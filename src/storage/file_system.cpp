// SPDX-License-Identifier: BSD-3-Clause
#include "storage/file_system.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::storage {
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
  /// A write error may be reported only here (NFS, quotas).
  [[nodiscard]] bool close() noexcept { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

/// A file that is unlinked unless it was renamed.
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

/// Unique for every call in this process; EEXIST detects those of another process or host.
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

bool is_unfinished(const std::string& name) {
  return name.starts_with(temporary_front) && name.ends_with(temporary_back);
}

class posix_writer final : public file_writer {
 public:
  explicit posix_writer(std::string path) : path_(std::move(path)) {
    const auto folder = folder_of(path_);
    int fd = -1;
    std::string name;
    do {  // open and not mkstemp, so that the mode follows the user's umask
      name = folder + "/" + temporary_front + unique_part() + temporary_back;
      fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    if (fd < 0) refuse(path_, "cannot be written", errno);
    file_.emplace(fd);
    temporary_.emplace(std::move(name));
  }

  void append(std::span<const std::byte> bytes) override {
    write_all(file_->get(), bytes, path_);
    written_ += static_cast<off_t>(bytes.size());
    // Starts writeback, so that the fsync at the end has little left to do; what fails here fails there as well.
    if (written_ - handed_over_ >= write_behind_bytes) {
      ::sync_file_range(file_->get(), handed_over_, written_ - handed_over_, SYNC_FILE_RANGE_WRITE);
      handed_over_ = written_;
    }
  }

  void commit() override {
    if (::fsync(file_->get()) != 0) refuse(path_, "cannot be written", errno);
    if (!file_->close()) refuse(path_, "cannot be written", errno);
    const auto folder = folder_of(path_);
    const descriptor above(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (above.get() < 0) refuse(folder, "cannot be opened", errno);
    if (::rename(temporary_->path().c_str(), path_.c_str()) != 0) refuse(path_, "cannot be replaced", errno);
    temporary_->renamed();
    if (::fsync(above.get()) != 0) refuse(folder, "cannot be synchronised", errno);
  }

 private:
  static constexpr off_t write_behind_bytes = 8 << 20;
  std::string path_;
  std::optional<temporary_file> temporary_;
  std::optional<descriptor> file_;
  off_t written_ = 0;
  off_t handed_over_ = 0;
};

class posix_reader final : public file_reader {
 public:
  explicit posix_reader(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_.get() < 0) refuse(path_, "cannot be opened", errno);
    struct stat about {};
    if (::fstat(file_.get(), &about) != 0) refuse(path_, "cannot be read", errno);
    if (S_ISDIR(about.st_mode)) refuse(path_, "cannot be read", EISDIR);
    size_ = static_cast<std::uint64_t>(std::max<off_t>(about.st_size, 0));
  }
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const override {
    std::size_t filled = 0;
    while (filled < into.size()) {
      const auto got =
          ::pread(file_.get(), into.data() + filled, into.size() - filled, static_cast<off_t>(offset + filled));
      if (got < 0) {
        if (errno == EINTR) continue;
        refuse(path_, "cannot be read", errno);
      }
      if (got == 0) break;
      filled += static_cast<std::size_t>(got);
    }
    return filled;
  }

 private:
  std::string path_;
  descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace

void sync_folder(const std::string& folder) {
  const descriptor above(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (above.get() < 0) refuse(folder, "cannot be opened", errno);
  if (::fsync(above.get()) != 0) refuse(folder, "cannot be synchronised", errno);
}

std::unique_ptr<file_writer> posix_file_system::create(const std::string& path) {
  return std::make_unique<posix_writer>(path);
}

std::unique_ptr<file_reader> posix_file_system::open(const std::string& path) const {
  return std::make_unique<posix_reader>(path);
}

std::vector<std::byte> posix_file_system::read(const std::string& path, std::size_t most_bytes) const {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) refuse(path, "cannot be opened", errno);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) refuse(path, "cannot be read", errno);
  if (S_ISDIR(about.st_mode)) refuse(path, "cannot be read", EISDIR);
  const auto expected = static_cast<std::size_t>(std::max<off_t>(about.st_size, 0));
  const auto too_long = [&] { return error(path + ": longer than " + std::to_string(most_bytes) + " bytes"); };
  if (expected > most_bytes) throw too_long();

  // a byte more than expected, to detect the end; a pipe or /proc has no size and is read in steps
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

std::vector<std::string> posix_file_system::list(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator i(folder, failed), end; !failed && i != end; i.increment(failed)) {
    auto name = i->path().filename().string();
    if (!is_unfinished(name)) names.push_back(std::move(name));
  }
  if (failed) refuse(folder, "cannot be listed", failed.value());
  std::sort(names.begin(), names.end());
  return names;
}

void posix_file_system::make_folder(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> fresh;  // from the innermost outwards
  auto at = std::filesystem::path(folder);
  if (!at.has_filename()) at = at.parent_path();
  while (!at.empty() && !std::filesystem::exists(at, failed) && at.has_filename()) {
    fresh.push_back(folder_of(at.string()));
    at = at.parent_path();
  }
  std::filesystem::create_directories(folder, failed);
  if (!failed && !std::filesystem::is_directory(folder, failed) && !failed)
    refuse(folder, "cannot be created", ENOTDIR);
  if (failed) refuse(folder, "cannot be created", failed.value());
  for (const auto& above : fresh) sync_folder(above);
  require_own(folder);
}

void posix_file_system::require_own(const std::string& folder) const {
  struct stat about {};
  if (::stat(folder.c_str(), &about) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return;  // there is none, and an attempt to create it will report why it cannot be
    refuse(folder, "cannot be examined", errno);
  }
  if (about.st_uid != ::geteuid()) {
    throw error(folder + ": belongs to another user (uid " + std::to_string(about.st_uid) + ", this is uid " +
                std::to_string(::geteuid()) + ")");
  }
}

bool posix_file_system::remove_folder(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator i(folder, failed), end; !failed && i != end; i.increment(failed)) {
    if (i->is_directory(failed) && !i->is_symlink(failed))
      refuse(i->path().string(), "is a folder and was not removed", EISDIR);
    names.push_back(i->path().string());
  }
  if (failed == std::errc::no_such_file_or_directory) return false;
  if (failed) refuse(folder, "cannot be removed", failed.value());
  for (const auto& name : names) remove(name);
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) refuse(folder, "cannot be removed", errno);
  return true;
}

void posix_file_system::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) refuse(from, "cannot be renamed to " + to, errno);
  sync_folder(folder_of(to));
}

void posix_file_system::remove_unfinished(const std::string& folder) {
  std::error_code none;
  for (std::filesystem::directory_iterator i(folder, none), end; !none && i != end; i.increment(none))
    if (is_unfinished(i->path().filename().string())) remove(i->path().string());
}

bool posix_file_system::remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  refuse(path, "cannot be removed", errno);
}

}  // namespace paracel::storage
