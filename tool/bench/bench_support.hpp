// SPDX-License-Identifier: BSD-3-Clause
//
// Shared by bench_kv and bench_zmq_floor, which must differ only in what they measure: a histogram that can be sent
// through a pipe, forked clients that start together, one line of JSON.
#pragma once

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace paracel::bench {

using clock = std::chrono::steady_clock;

/// Latencies in buckets of 1/32 of their size (3 %), from 1 ns to 18 s.
class histogram {
 public:
  void add(std::uint64_t ns) noexcept { ++counts_[bucket(ns)]; }
  void add(const histogram& other) noexcept {
    for (std::size_t i = 0; i < buckets; ++i) counts_[i] += other.counts_[i];
  }
  /// Units: microseconds.
  [[nodiscard]] double quantile(double q) const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t c : counts_) all += c;
    auto left = static_cast<std::uint64_t>(q * static_cast<double>(all));
    for (std::size_t i = 0; i < buckets; ++i) {
      if (left < counts_[i]) return static_cast<double>(lower_edge(i)) / 1e3;
      left -= counts_[i];
    }
    return 0;
  }

 private:
  static constexpr std::size_t buckets = 32 * 30;
  static std::size_t bucket(std::uint64_t ns) noexcept {
    if (ns < 32) return ns;
    const auto shift = static_cast<std::size_t>(std::bit_width(ns)) - 6;
    const std::size_t b = 32 * (shift + 1) + ((ns >> shift) - 32);
    return b < buckets ? b : buckets - 1;
  }
  static std::uint64_t lower_edge(std::size_t b) noexcept {
    if (b < 32) return b;
    return (std::uint64_t{32} + b % 32) << (b / 32 - 1);
  }
  std::uint64_t counts_[buckets] = {};
};

/// The results of one client.
struct tally {
  std::uint64_t calls = 0;
  double seconds = 0;
  double client_seconds = 0;  ///< processor time of this client during the calls
  double server_seconds = 0;  ///< of the servers, for all clients
  histogram latency;
};

/// Processor time of a process so far.
inline double processor_seconds(pid_t process) {
  clockid_t id{};
  timespec t{};
  if (::clock_getcpuclockid(process, &id) != 0 || ::clock_gettime(id, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

/// One client's measured time: starts after the warm-up, ends after `seconds`.
class stopwatch {
 public:
  stopwatch(tally& t, double warm_up, double seconds, std::vector<pid_t> servers = {})
      : tally_(t), seconds_(seconds), servers_(std::move(servers)) {
    begin_ = clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(warm_up));
    end_ = begin_ + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  }
  /// Records the reply to a call sent at `sent`. Returns false when the time is over.
  bool answered(clock::time_point sent, clock::time_point now) {
    if (now >= end_) {
      if (std::exchange(is_over_, true)) return false;  // the other requests in flight
      tally_.seconds = seconds_;
      add_processor_time(1);
      return false;
    }
    if (now >= begin_) {
      if (tally_.calls == 0) add_processor_time(-1);
      ++tally_.calls;
      tally_.latency.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(now - sent).count()));
    }
    return true;
  }

 private:
  void add_processor_time(double sign) {
    if (sign > 0 && tally_.calls == 0) return;
    tally_.client_seconds += sign * processor_seconds(::getpid());
    for (const auto s : servers_) tally_.server_seconds += sign * processor_seconds(s);
  }

  tally& tally_;
  double seconds_;
  std::vector<pid_t> servers_;
  clock::time_point begin_, end_;
  bool is_over_ = false;
};

/// Keeps the memory of large messages, as start_server does, instead of returning it to the kernel after each:
/// otherwise every 1 MB message is mapped, zeroed and unmapped again.
inline void keep_large_blocks() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

inline void write_all(int fd, const void* from, std::size_t size) {
  const char* p = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = ::write(fd, p, size);
    if (n <= 0) throw std::runtime_error("a pipe between the benchmark's processes broke");
    p += n;
    size -= static_cast<std::size_t>(n);
  }
}
inline void read_all(int fd, void* into, std::size_t size) {
  char* p = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t n = ::read(fd, p, size);
    if (n <= 0) throw std::runtime_error("a process of the benchmark died");
    p += n;
    size -= static_cast<std::size_t>(n);
  }
}

/// A forked process with a pipe each way; killed when the benchmark ends.
class child {
 public:
  /// `run(in, out)` is the body of the process; an exception is printed and exits with status 1.
  explicit child(const std::function<void(int in, int out)>& run) {
    int down[2];
    int up[2];
    if (::pipe(down) != 0 || ::pipe(up) != 0) throw std::runtime_error("cannot create a pipe");
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::close(down[1]);
      ::close(up[0]);
      int status = 0;
      try {
        run(down[0], up[1]);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "bench: error: %s\n", e.what());
        status = 1;
      }
      ::_exit(status);
    }
    ::close(down[0]);
    ::close(up[1]);
    in_ = up[0];
    out_ = down[1];
  }
  child(child&& other) noexcept : pid_(other.pid_), in_(other.in_), out_(other.out_) { other.pid_ = -1; }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  child& operator=(child&&) = delete;
  ~child() {
    if (pid_ <= 0) return;
    ::close(in_);
    ::close(out_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] int in() const noexcept { return in_; }
  [[nodiscard]] int out() const noexcept { return out_; }
  [[nodiscard]] pid_t process() const noexcept { return pid_; }
  /// Waits for the process to exit: killing it would lose its processor time.
  void join() {
    ::waitpid(pid_, nullptr, 0);
    ::close(in_);
    ::close(out_);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
};

inline void add(tally& sum, const tally& t) {
  sum.calls += t.calls;
  sum.seconds = t.seconds;
  sum.client_seconds += t.client_seconds;
  sum.server_seconds = std::max(sum.server_seconds, t.server_seconds);  // each client has seen all of them
  sum.latency.add(t.latency);
}

/// Runs `count` clients in parallel: all prepare, start together, and their reports are summed. `prepare(i)` returns
/// the measured part. A report is trivially copyable and has an `add`.
template <class Report>
Report run_clients(int count, const std::function<std::function<Report()>(int)>& prepare) {
  std::vector<child> all;
  for (int i = 0; i < count; ++i) {
    all.emplace_back([i, &prepare](int in, int out) {
      const std::function<Report()> measure = prepare(i);
      char go = 'r';
      write_all(out, &go, 1);
      read_all(in, &go, 1);
      const Report r = measure();
      write_all(out, &r, sizeof r);
    });
  }
  char byte = 0;
  for (child& c : all) read_all(c.in(), &byte, 1);
  for (child& c : all) write_all(c.out(), "g", 1);
  Report sum{};
  for (child& c : all) {
    Report r;
    read_all(c.in(), &r, sizeof r);
    add(sum, r);
  }
  for (child& c : all) c.join();
  return sum;
}

/// `bytes_per_call`: size of the value, in the direction in which it is sent. `keys_per_call`: keys or rows.
/// `extra`: more fields, beginning with a comma. JSON has no infinity: without calls a key took no time.
inline void print(const tally& t, double bytes_per_call, double keys_per_call, const char* extra = "") {
  const double rate = static_cast<double>(t.calls) / t.seconds;
  const double keys = static_cast<double>(std::max<std::uint64_t>(t.calls, 1)) * keys_per_call;
  std::printf(
      "{\"calls\": %llu, \"seconds\": %.3f, \"calls_per_second\": %.1f, \"bytes_per_second\": %.1f, \"p50_us\": %.2f, "
      "\"p99_us\": %.2f, \"ns_per_key\": %.2f, \"client_cpu_s_per_million\": %.5f, \"server_cpu_s_per_million\": %.5f, "
      "\"cpu_s_per_million\": %.5f%s}\n",
      static_cast<unsigned long long>(t.calls), t.seconds, rate, rate * bytes_per_call, t.latency.quantile(0.5),
      t.latency.quantile(0.99), t.calls == 0 ? 0 : t.seconds * 1e9 / keys, t.client_seconds * 1e6 / keys,
      t.server_seconds * 1e6 / keys, (t.client_seconds + t.server_seconds) * 1e6 / keys, extra);
}

}  // namespace paracel::bench
