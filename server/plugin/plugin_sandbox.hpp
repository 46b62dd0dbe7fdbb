// SPDX-License-Identifier: BSD-3-Clause
//
// User functions in separate processes, so that one that crashes, exits, hangs or exhausts memory fails its call and
// nothing else. Each server thread has its own process, started when it first loads or calls a plug-in, and replaced
// when it has ended:
//
//   thread of a server                                        start_sandbox
//     in_place(stand-in, value, delta)
//       copies them to shared memory, increments ── futex ──►  calls the plug-in's function
//       checks and copies the result             ◄── futex ──
//
// The server keeps only stand-ins for a plug-in: copies of its objects whose pointers lead to functions that do this.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/update.hpp>

#include "server/plugin/plugin_files.hpp"
#include "server/plugin/plugin_library.hpp"

namespace paracel::srv {

class sandbox_runner;
struct sandboxed_function;

/// How long a call of a function may take.
struct function_timeouts {
  // Not explicit: one limit for all. NOLINTNEXTLINE(google-explicit-constructor)
  function_timeouts(std::chrono::milliseconds all = std::chrono::seconds(30)) : otherwise(all) {}
  std::chrono::milliseconds otherwise;
  std::map<std::string, std::chrono::milliseconds, std::less<>> of_function{};  ///< by name, "libx.so:f"

  [[nodiscard]] std::chrono::milliseconds of(std::string_view name) const {
    const auto own = of_function.find(name);
    return own == of_function.end() ? otherwise : own->second;
  }
};

struct sandbox_options {
  std::string program;                                   ///< the path of start_sandbox; empty: no sandbox
  std::size_t memory_bytes = std::size_t{4} << 30;       ///< limit on the address space of a process; 0: none
  std::size_t max_value_bytes = std::size_t{256} << 20;  ///< the largest value that is passed
  function_timeouts timeouts{};
};

/// Thread-safety: any thread.
/// Lifetime: must outlive the functions of its libraries.
class plugin_sandbox {
 public:
  explicit plugin_sandbox(sandbox_options options);
  ~plugin_sandbox();
  plugin_sandbox(const plugin_sandbox&) = delete;
  plugin_sandbox& operator=(const plugin_sandbox&) = delete;

  /// Null: `why` says why not.
  [[nodiscard]] std::unique_ptr<plugin_library> open(const plugin_file& file, std::string& why);

  /// Called with a line about a process that has ended: for each function the first time, the second, the fourth, ...
  void log_to(std::function<void(const std::string&)> log);
  /// Processes started so far, and those that have ended by themselves or were killed for taking too long.
  [[nodiscard]] std::uint64_t started() const noexcept { return started_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

  /// The calling thread's.
  [[nodiscard]] sandbox_runner& mine();

 private:
  class library;
  friend class sandbox_runner;

  sandboxed_function& add_function(const plugin_file& file, std::string symbol);
  void drop_function(const sandboxed_function& f);
  std::vector<std::byte>& add_stand_in(std::vector<std::byte> bytes);
  void count_started() noexcept { started_.fetch_add(1, std::memory_order_relaxed); }
  void count_lost() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  void report(const sandboxed_function& f, const std::string& how);

  const sandbox_options options_;
  const std::uint64_t serial_;  // differs from that of every other sandbox
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::mutex mutex_;
  std::unordered_map<std::thread::id, std::unique_ptr<sandbox_runner>> runners_;
  std::deque<sandboxed_function> functions_;      // they never move
  std::deque<std::vector<std::byte>> stand_ins_;  // likewise
  std::function<void(const std::string&)> log_;
  std::unordered_map<std::string, std::uint64_t> losses_;  // by the function's name
};

}  // namespace paracel::srv
