// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/usage.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace paracel {

namespace {

struct thread_times {
  std::uint64_t on_cpu_ns = 0;
  std::uint64_t delayed_ns = 0;
};

/// Empty when the system keeps no such account, or the thread has ended.
std::optional<thread_times> times_of(long thread) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/schedstat");
  thread_times t;
  if (in >> t.on_cpu_ns >> t.delayed_ns) return t;
  return std::nullopt;
}

/// The part of a thread's CPU time that the kernel has used for it. Its name may contain spaces and parentheses.
std::optional<double> system_part_of(long thread) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(in, line);
  const auto after_name = line.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  constexpr int fields_before = 11;  // state, ppid, ... cmajflt
  unsigned long long user = 0;
  unsigned long long system = 0;
  std::size_t at = after_name + 1;
  for (int i = 0; i < fields_before && at != std::string::npos; ++i) at = line.find(' ', at + 1);
  if (at == std::string::npos || std::sscanf(line.c_str() + at, "%llu %llu", &user, &system) != 2) return std::nullopt;
  return user + system == 0 ? 0 : static_cast<double>(system) / static_cast<double>(user + system);
}

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); }

std::uint64_t delay_until_now(long thread) {
  const auto t = times_of(thread);
  return t ? t->delayed_ns : 0;
}

}  // namespace

usage::usage() : thread_(syscall(SYS_gettid)), delayed_before_(delay_until_now(thread_)) {}

nlohmann::json usage::report() const {
  const auto value = [](const std::atomic<std::uint64_t>& c) { return c.load(std::memory_order_relaxed); };
  nlohmann::json all{{"seconds", seconds()},
                     {"ahead", ahead_.load(std::memory_order_relaxed)},
                     {"requests", value(requests_)},
                     {"sent_bytes", value(sent_bytes_)},
                     {"received_bytes", value(received_bytes_)}};
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    all["peak_bytes"] = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
    if (const auto t = times_of(thread_)) {
      const double cpu = 1e-9 * static_cast<double>(t->on_cpu_ns);
      all["cpu"] = cpu;
      all["delayed"] = 1e-9 * static_cast<double>(t->delayed_ns - std::min(t->delayed_ns, delayed_before_));
      all["background"] = std::max(0.0, seconds_of(used.ru_utime) + seconds_of(used.ru_stime) - cpu);
      if (const auto part = system_part_of(thread_)) all["system"] = cpu * *part;
    }
  }
  return all;
}

}  // namespace paracel
