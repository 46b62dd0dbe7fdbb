// SPDX-License-Identifier: BSD-3-Clause
#include "worker/results/output_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "core/identity.hpp"

namespace paracel {

namespace fs = std::filesystem;

namespace {

// The processes of a killed job exit shortly after their launcher.
constexpr std::chrono::milliseconds ending_job{2000};
// Entering removes files; a process that is stopped meanwhile must not block the others forever.
constexpr std::chrono::milliseconds turn_limit{30000};
// All workers enter at once, and each keeps the turn for a moment; a job that is ending keeps the folder for longer.
constexpr std::chrono::microseconds shortest_poll{200};
constexpr std::chrono::microseconds longest_poll{20000};

struct kept_paths {
  mutex access;
  std::set<std::string> paths PARACEL_GUARDED_BY(access);  // in weakly_canonical form
};
kept_paths& kept() {
  static kept_paths all;
  return all;
}

[[noreturn]] void failed(const std::string& path) { throw error(path + ": cannot be opened: " + std::strerror(errno)); }

int open_own(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) failed(path);
  return fd;
}

/// False when another process holds a conflicting lock. On a file system without locks there is no conflict.
bool lock(int fd, int how) {
  while (::flock(fd, how | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return true;
  }
  return true;
}

std::string read_owner(int fd) {
  char text[512];
  const auto n = ::pread(fd, text, sizeof text, 0);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
}

struct closed_later {
  int fd;
  ~closed_later() {
    if (fd >= 0) ::close(fd);
  }
};

/// Over the earlier owner, which takes no space on a full disk.
void write_owner(int fd, const std::string& text, const std::string& path) {
  const auto written = ::pwrite(fd, text.data(), text.size(), 0);
  if (written >= 0 && written != static_cast<ssize_t>(text.size())) errno = ENOSPC;
  if (written != static_cast<ssize_t>(text.size()) || ::ftruncate(fd, static_cast<off_t>(text.size())) != 0)
    throw error(path + ": cannot be written: " + std::strerror(errno));
}

/// All of the text, or none of it: a part of a name may be the name of another file.
bool append(const std::string& path, const std::string& text) {
  const closed_later file{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666)};
  struct stat about {};
  if (file.fd < 0 || ::fstat(file.fd, &about) != 0) return false;
  const auto written = ::write(file.fd, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return true;
  if (written > 0) {
    if (::ftruncate(file.fd, about.st_size) != 0) return false;
    errno = ENOSPC;
  }
  return false;
}

std::string here() { return "process " + std::to_string(::getpid()) + " on " + host_name(); }

/// Whether a file with this path is really below `folder`.
bool lies_below(const fs::path& path, const fs::path& folder) {
  std::error_code problem;
  const auto where = fs::weakly_canonical(path.parent_path(), problem);
  const auto top = problem ? fs::path() : fs::canonical(folder, problem);
  if (problem) return false;
  return std::mismatch(top.begin(), top.end(), where.begin(), where.end()).first == top.end();
}

/// <program>.<rank>.files
bool is_list_of(const std::string& program, std::string_view name) {
  constexpr std::string_view ending = ".files";
  if (!name.starts_with(program + ".") || !name.ends_with(ending)) return false;
  name.remove_prefix(program.size() + 1);
  return name.size() > ending.size() &&
         name.substr(0, name.size() - ending.size()).find_first_not_of("0123456789") == name.npos;
}

/// Adds the manifest of a model and the files that it names.
void add_model(const fs::path& manifest, std::set<std::string>& to) {
  std::error_code problem;
  to.insert(fs::weakly_canonical(manifest, problem).string());
  std::ifstream in(manifest);
  const auto model = nlohmann::json::parse(in, nullptr, false);
  const auto arrays = model.is_object() ? model.value("arrays", nlohmann::json::object()) : nlohmann::json();
  if (!arrays.is_object()) return;
  for (const auto& array : arrays) {
    for (const char* which : {"files", "ids"}) {
      if (!array.is_object() || !array.contains(which) || !array[which].is_array()) continue;
      for (const auto& name : array[which])
        if (name.is_string())
          to.insert(fs::weakly_canonical(manifest.parent_path() / name.get<std::string>(), problem).string());
    }
  }
}

}  // namespace

output_folder::output_folder(std::string folder, owner who) : folder_(std::move(folder)), who_(std::move(who)) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  std::replace(who_.program.begin(), who_.program.end(), '/', '_');
  const auto mine = folder_ + "/.paracel";
  if (::mkdir(mine.c_str(), 0777) != 0 && errno != EEXIST) failed(mine);
  struct stat about {};
  if (::lstat(mine.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) throw error(mine + ": is not a folder");
  files_ = own(who_.program + "." + std::to_string(who_.rank) + ".files");
  enter();
}

output_folder::~output_folder() {
  {
    const mutex_lock guard(mutex_);
    write_names();
  }
  ::close(job_fd_);
}

void output_folder::enter() {
  using clock = std::chrono::steady_clock;
  const auto began = clock::now();
  const auto me = "job " + to_hex(who_.job) + ",";
  const closed_later turn{open_own(own("turn"))};
  job_fd_ = open_own(own("job"));
  try {
    for (auto nap = shortest_poll;; std::this_thread::sleep_for(nap), nap = std::min(2 * nap, longest_poll)) {
      const auto waited = clock::now() - began;
      if (!lock(turn.fd, LOCK_EX)) {
        if (waited > turn_limit) throw error("output folder " + folder_ + ": another process keeps it locked");
        continue;
      }
      if (lock(job_fd_, LOCK_EX)) {  // no other job has entered
        if (!read_owner(job_fd_).starts_with(me)) {
          remove_earlier();
          write_owner(job_fd_, me + " " + here(), own("job"));
        }
        lock(job_fd_, LOCK_SH);
        return;
      }
      const auto found = read_owner(job_fd_);
      if (found.starts_with(me)) {
        lock(job_fd_, LOCK_SH);
        return;
      }
      if (waited > ending_job)
        throw config_error("output folder " + folder_ + " belongs to a job that is running (" + found +
                           "), want another folder, or wait for that job to end");
      ::flock(turn.fd, LOCK_UN);
    }
  } catch (...) {
    ::close(job_fd_);
    throw;
  }
}

void output_folder::remove_earlier() {
  std::set<std::string> stay;
  {
    const mutex_lock guard(kept().access);
    stay = kept().paths;
  }
  std::vector<std::string> left;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder_ + "/.paracel", problem)) {
    if (!is_list_of(who_.program, entry.path().filename().string())) continue;
    std::ifstream list(entry.path());
    for (std::string file; std::getline(list, file) && !list.eof();) {  // a line without its end was cut off
      const auto path = fs::path(folder_) / fs::path(file).lexically_normal();
      if (file.empty() || !lies_below(path, folder_)) continue;
      if (stay.contains(fs::weakly_canonical(path, problem).string())) {
        left.push_back(file);
        continue;
      }
      if (!fs::is_directory(fs::symlink_status(path, problem))) fs::remove(path, problem);
    }
    fs::remove(entry.path(), problem);
  }
  for (const auto& file : left) record(file);
}

void output_folder::record(const std::string& name) {
  const mutex_lock guard(mutex_);
  if (std::ranges::find(recorded_, name) != recorded_.end() || name.find('\n') != std::string::npos) return;
  recorded_.push_back(name);
  write_names();
}

void output_folder::write_names() {
  std::string lines;
  for (auto i = written_; i < recorded_.size(); ++i) lines += recorded_[i] + '\n';
  if (lines.empty()) return;
  if (append(files_, lines)) {
    written_ = recorded_.size();
    return;
  }
  if (std::exchange(warned_, true)) return;
  std::fprintf(stderr, "worker %u: warning: %s: cannot be written: %s; the next run may not remove %s\n", who_.rank,
               files_.c_str(), std::strerror(errno), recorded_.back().c_str());
}

void output_folder::keep(const std::vector<std::string>& paths) {
  const mutex_lock guard(kept().access);
  for (const auto& name : paths) {
    std::error_code problem;
    const fs::path path(name);
    if (fs::is_directory(path, problem)) add_model(path / "model.json", kept().paths);
    else if (path.filename() == "model.json") add_model(path, kept().paths);
    else kept().paths.insert(fs::weakly_canonical(path, problem).string());
  }
}

output_folder& output_folders::at(const std::string& folder, std::uint64_t job, std::uint32_t rank) {
  const auto where = folder.empty() ? std::string(".") : folder;
  auto& entered = entered_[where];
  if (!entered)
    entered = std::make_unique<output_folder>(where, output_folder::owner{job, rank, program_invocation_short_name});
  return *entered;
}

}  // namespace paracel
