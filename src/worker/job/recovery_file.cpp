// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/recovery_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "storage/file_system.hpp"

namespace paracel {
namespace {

constexpr std::size_t state_front_bytes = 16;
// Kept free in each file, so that a full disk has space for why a commit could not be written, and for 511 clients.
constexpr off_t reserved_bytes = 4096;

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return hash_key({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<std::byte> read_all(int fd) {
  struct stat about {};
  std::vector<std::byte> bytes;
  if (fstat(fd, &about) != 0 || about.st_size <= 0) return bytes;
  bytes.resize(static_cast<std::size_t>(about.st_size));
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto n = pread(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  bytes.resize(at);
  return bytes;
}

int open_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) throw error(path + ": cannot be created: " + std::strerror(errno));
  struct stat about {};
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) {
    close(fd);
    throw error(path + ": is not a regular file of this user");
  }
  if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, reserved_bytes) != 0 && errno != EOPNOTSUPP) {
    const std::string why = std::strerror(errno);
    close(fd);
    throw error(path + ": cannot be created: " + why);
  }
  return fd;
}

}  // namespace

recovery_file::recovery_file(const std::string& folder, std::uint64_t job, std::uint32_t rank, bool outlives_host)
    : job_(job), name_(folder + "/worker-" + std::to_string(rank)), outlives_host_(outlives_host) {
  try {
    for (std::size_t i = 0; i < files_.size(); ++i) files_[i] = open_file(name_ + ".kept" + std::to_string(i));
    clients_ = open_file(name_ + ".clients");
    if (outlives_host_) storage::sync_folder(folder);
  } catch (...) {
    for (const int fd : files_) close(fd);
    close(clients_);
    throw;
  }
  // The older one is overwritten next.
  const auto first = read(files_[0]);
  const auto second = read(files_[1]);
  turn_ = first && (!second || second->clock < first->clock) ? 1 : 0;
}

recovery_file::~recovery_file() {
  for (const int fd : files_) close(fd);
  close(clients_);
}

void recovery_file::write_at(int fd, std::span<const std::byte> bytes, std::size_t at, const char* suffix) const {
  const auto fail = [&] { throw error(name_ + suffix + ": cannot be written: " + std::strerror(errno)); };
  while (!bytes.empty()) {
    const auto n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::size_t>(n);
  }
  if (outlives_host_ && fdatasync(fd) != 0) fail();
}

std::optional<recovery_file::commit> recovery_file::read(int fd) const {
  const auto bytes = read_all(fd);
  auto rest = std::span<const std::byte>(bytes);
  std::uint64_t size = 0;
  std::uint64_t sum = 0;
  std::uint64_t job = 0;
  std::uint32_t ranges = 0;
  std::uint32_t text = 0;
  commit c;
  if (!take_fields(rest, size, sum) || size > rest.size()) return std::nullopt;
  rest = rest.first(static_cast<std::size_t>(size));  // a shorter one overwrites a longer one
  if (checksum(rest) != sum || !take_fields(rest, job) || job != job_) return std::nullopt;
  if (!take_fields(rest, c.clock, ranges, c.collectives.from)) return std::nullopt;
  for (std::uint32_t i = 0; i < ranges; ++i) {
    std::pair<std::uint64_t, std::uint64_t> range;
    if (!take_fields(rest, range.first, range.second)) return std::nullopt;
    c.collectives.ranges.push_back(range);
  }
  if (!take_fields(rest, text) || text > rest.size()) return std::nullopt;
  c.cannot.assign(reinterpret_cast<const char*>(rest.data()), text);
  rest = rest.subspan(text);
  c.parts.assign(rest.begin(), rest.end());
  return c;
}

std::optional<recovery_file::commit> recovery_file::last() const {
  auto first = read(files_[0]);
  auto second = read(files_[1]);
  if (!first) return second;
  if (!second || second->clock < first->clock) return first;
  return second->clock > first->clock || !second->cannot.empty() ? second : first;
}

std::string recovery_file::write(const commit& c) {
  try {
    put(c);
    return {};
  } catch (const error& e) {
    mark(c.clock, std::string("its state cannot be saved: ") + e.what());
    return e.what();
  }
}

void recovery_file::mark(std::uint32_t clock, const std::string& cannot) {
  const commit c{.clock = clock, .collectives = {}, .cannot = cannot, .parts = {}};
  try {
    return put(c);
  } catch (const error&) {
    // Where even overwriting takes space, both give theirs up: neither must be taken for the last commit.
    for (const int fd : files_)
      if (ftruncate(fd, 0) != 0) throw;
  }
  put(c);
}

void recovery_file::put(const commit& c) {
  auto& out = buffer_;
  out.assign(state_front_bytes, std::byte{0});
  put_fields(out, job_, c.clock, static_cast<std::uint32_t>(c.collectives.ranges.size()), c.collectives.from);
  for (const auto& [begin, end] : c.collectives.ranges) put_fields(out, begin, end);
  put_fields(out, static_cast<std::uint32_t>(c.cannot.size()));
  put_bytes(out, c.cannot.data(), c.cannot.size());
  out.insert(out.end(), c.parts.begin(), c.parts.end());
  const std::uint64_t size = out.size() - state_front_bytes;
  const std::uint64_t sum = checksum(std::span(out).subspan(state_front_bytes));
  store_fields(out.data(), size, sum);
  write_at(files_[turn_], out, 0, ".kept");
  turn_ ^= 1U;
}

std::vector<std::uint64_t> recovery_file::clients() const {
  const auto bytes = read_all(clients_);
  std::vector<std::uint64_t> ids(bytes.size() / sizeof(std::uint64_t));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(std::uint64_t));
  if (ids.empty() || ids.front() != job_) return {};
  ids.erase(ids.begin());
  return ids;
}

void recovery_file::add_client(std::uint64_t id) {
  auto ids = clients();
  const std::array<std::uint64_t, 2> both{job_, id};
  if (ids.empty()) return write_at(clients_, std::as_bytes(std::span(both)), 0, ".clients");
  write_at(clients_, std::as_bytes(std::span(&id, 1)), (1 + ids.size()) * sizeof id, ".clients");
}

}  // namespace paracel
