// SPDX-License-Identifier: BSD-3-Clause
#include "net/trace_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/identity.hpp"
#include "core/json_io.hpp"
#include "core/number_parsing.hpp"
#include "core/trace.hpp"
#include "net/verbs.hpp"

namespace paracel::net {

namespace {

constexpr std::string_view trace_magic = "PRCTRC01";
constexpr std::size_t dropped_at = 16;  // in the file
constexpr std::uint64_t least_bytes = 64 << 10;
constexpr int most_files = 100'000;  // of one role and index: a process that is started again takes the next names

std::uint64_t clock_in_ns(clockid_t which) noexcept {
  timespec t{};
  clock_gettime(which, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

/// Ticks and clocks of the same moment, unless the thread loses its processor in between: the closest of three tries.
trace::record clocks_now() noexcept {
  trace::record best;
  for (int i = 0; i < 3; ++i) {
    trace::record r;
    r.begin = trace::now();
    r.client = clock_in_ns(CLOCK_BOOTTIME);
    r.end = trace::now();
    r.sequence = clock_in_ns(CLOCK_REALTIME);
    if (i == 0 || r.end - r.begin < best.end - best.begin) best = r;
  }
  return best;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::vector<std::byte> header_of(const std::string& role, std::uint32_t index, const std::string& thread) {
  auto verbs = nlohmann::json::object();
  for (std::size_t i = 1; i < verb_count; ++i) {
    const auto v = static_cast<verb>(i);
    if (is_known(v)) verbs[std::to_string(i)] = name_of(v);
  }
  auto phases = nlohmann::json::object();
  for (std::size_t i = 1; i < std::size(trace::names_of_phases); ++i)
    phases[std::to_string(i)] = trace::names_of_phases[i];
  const auto text = json_text({{"role", role},
                               {"index", index},
                               {"thread", thread},
                               {"pid", getpid()},
                               {"tid", syscall(SYS_gettid)},
                               {"host", host_name()},
                               {"boot", boot_id()},
                               {"cycles", trace::counts_cycles()},
                               {"verbs", verbs},
                               {"phases", phases}});
  std::vector<std::byte> out(trace_magic.size() + 24 + text.size());
  out.resize((out.size() + sizeof(trace::record) - 1) / sizeof(trace::record) * sizeof(trace::record));
  std::memcpy(out.data(), trace_magic.data(), trace_magic.size());
  store_fields(out.data() + trace_magic.size(), static_cast<std::uint32_t>(out.size()),
               static_cast<std::uint32_t>(sizeof(trace::record)), std::uint64_t{0},
               static_cast<std::uint32_t>(text.size()), std::uint32_t{0});
  std::memcpy(out.data() + trace_magic.size() + 24, text.data(), text.size());
  return out;
}

class trace_file final : public trace::log {
 public:
  trace_file(int fd, std::string path, std::span<const std::byte> header, std::uint64_t most_bytes)
      : fd_(fd), path_(std::move(path)), left_(most_bytes) {
    // Writing beyond this limit would end the process.
    if (rlimit limit{}; getrlimit(RLIMIT_FSIZE, &limit) == 0) left_ = std::min<std::uint64_t>(left_, limit.rlim_cur);
    const auto now = clocks_now();
    if (append(header)) append(std::as_bytes(std::span(&now, 1)));
  }
  ~trace_file() override {
    note_dropped();
    if (fd_ >= 0) close(fd_);
  }
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  void write(std::span<const trace::record> records) noexcept override {
    std::array<trace::record, trace::buffer::capacity + 1> all;
    while (!records.empty()) {
      const auto n = std::min(records.size(), all.size() - 1);
      all[0] = clocks_now();
      std::copy_n(records.begin(), n, all.begin() + 1);
      records = records.subspan(n);
      if (fd_ < 0 || !append(std::as_bytes(std::span(all).first(n + 1)))) dropped_ += n;
    }
    note_dropped();
  }

 private:
  /// Returns: whether all of it has been written.
  bool append(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() > left_) return false;
    left_ -= bytes.size();
    const auto whole = end_;
    while (!bytes.empty()) {
      const auto n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int why = n < 0 ? errno : ENOSPC;
        std::fprintf(stderr, "warning: the trace %s cannot be written: %s: the rest of this thread is not traced\n",
                     path_.c_str(), std::strerror(why));
        left_ = 0;
        static_cast<void>(ftruncate(fd_, static_cast<off_t>(whole)) != 0);  // a reader ignores what is cut off, too
        return false;
      }
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      end_ += static_cast<std::uint64_t>(n);
    }
    return true;
  }
  void note_dropped() noexcept {
    if (dropped_ == noted_ || fd_ < 0) return;
    noted_ = dropped_;
    static_cast<void>(pwrite(fd_, &dropped_, sizeof dropped_, dropped_at) < 0);  // it can only be missing
  }

  int fd_;
  std::string path_;
  std::uint64_t left_;
  std::uint64_t end_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t noted_ = 0;
};

void warn_untraced(const std::string& who, const std::string& path, int why) {
  std::fprintf(stderr, "warning: %s is not traced: %s: %s\n", who.c_str(), path.c_str(), std::strerror(why));
}

std::unique_ptr<trace::log> open_trace(const trace_options& o, const std::string& role, std::uint32_t index,
                                       const std::string& thread) {
  const auto stem = o.folder + "/" + role + "_" + std::to_string(index) + ".";
  for (int n = 0; n < most_files; ++n) {
    auto path = stem + std::to_string(n) + ".trace";
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) return std::make_unique<trace_file>(fd, path, header_of(role, index, thread), o.most_bytes);
    if (errno == EEXIST) continue;
    warn_untraced(role + " " + std::to_string(index) + ", " + thread + ",", path, errno);
    break;
  }
  return nullptr;
}

}  // namespace

void start_tracing(const trace_options& options) {
  if (mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST)
    return warn_untraced("this process", options.folder, errno);
  trace::start([options](const std::string& role, std::uint32_t index,
                         const std::string& thread) { return open_trace(options, role, index, thread); },
               options.every);
}

void start_tracing_if_asked() {
  const auto text_of_variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  trace_options o;
  o.folder = text_of_variable("PARACEL_TRACE");
  if (o.folder.empty()) return;
  if (const auto text = text_of_variable("PARACEL_TRACE_BYTES"); !text.empty()) {
    if (!read_byte_count(text, o.most_bytes) || o.most_bytes < least_bytes)
      throw usage_error("environment variable PARACEL_TRACE_BYTES=" + text + ": want a number of bytes, at least 64K");
  }
  if (const auto text = text_of_variable("PARACEL_TRACE_EVERY"); !text.empty()) {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), o.every);
    if (r.ec != std::errc{} || r.ptr != text.data() + text.size() || o.every == 0)
      throw usage_error("environment variable PARACEL_TRACE_EVERY=" + text + ": want a whole number, at least 1");
  }
  start_tracing(o);
}

}  // namespace paracel::net
