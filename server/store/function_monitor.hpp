// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/plugin/last_words.hpp"
#include "server/plugin/plugin_registry.hpp"

namespace paracel::srv {

/// The user function a shard is in. Two reads with the same `serial` see the same call.
struct running_function {
  const std::string* name = nullptr;  ///< null: in none; lives as long as the server
  std::uint64_t serial = 0;
};

/// Which user function a thread is in.
/// Thread-safety: `runs` by that thread, `busy` by any.
class function_monitor {
 public:
  /// The function that runs from now on; null: none.
  void runs(const std::string* function) noexcept {
    if (function != nullptr) serial_.store(serial_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    name_.store(function, std::memory_order_release);
  }
  [[nodiscard]] running_function busy() const noexcept {
    running_function b;
    b.serial = serial_.load(std::memory_order_relaxed);
    b.name = name_.load(std::memory_order_acquire);
    return b;
  }

 private:
  std::atomic<const std::string*> name_{nullptr};
  std::atomic<std::uint64_t> serial_{0};
};

/// Marks the thread as being in this function while alive.
class busy_mark {
 public:
  busy_mark(function_monitor& of, const std::string& name, std::uint64_t function = 0,
            std::string_view key = {}) noexcept
      : of_(of), call_({&name, function, key}) {
    of_.runs(&name);
  }
  busy_mark(function_monitor& of, const loaded_update& f, std::string_view key) noexcept
      : busy_mark(of, f.name, f.id, key) {}
  busy_mark(const busy_mark&) = delete;
  busy_mark& operator=(const busy_mark&) = delete;
  ~busy_mark() { of_.runs(nullptr); }

 private:
  function_monitor& of_;
  const in_user_call call_;
};

}  // namespace paracel::srv
