// SPDX-License-Identifier: BSD-3-Clause
//
// What a server reports when a user function terminates it: which function, and at which key.
//
//   the thread in the function  --a signal, exit()-->  writes the report, wakes the main thread, waits briefly
//   the main thread             --leave with the report-->  the scheduler, which has the function blocked everywhere
//
// Without it the request that killed a server would be retried at the servers with replicas, and kill them in turn.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paracel::srv {

/// The user code that a thread is executing. What it points to must outlive the call, the name the server.
struct user_call {
  const std::string* name = nullptr;  ///< of the function or other user code
  std::uint64_t function = 0;         ///< its id; 0: not a function, but the loading of plug-ins
  std::string_view key{};             ///< the key it works on; for a row its name, or the name of its table
  std::uint64_t row = no_row;         ///< the id of a row
  static constexpr std::uint64_t no_row = ~std::uint64_t{0};
};

/// The user call of a thread, and after its end the last one, as signal handlers of this and other threads read it: a
/// sequence lock. Thread-safety: written by its thread, read by any.
class published_call {
 public:
  constexpr published_call() = default;
  void begin(const user_call& c) noexcept {
    const auto serial = serial_.load(std::memory_order_relaxed);
    serial_.store(serial + 1, std::memory_order_relaxed);  // odd: being written
    std::atomic_thread_fence(std::memory_order_release);
    name_.store(c.name, std::memory_order_relaxed);
    function_.store(c.function, std::memory_order_relaxed);
    key_.store(packed(c.key), std::memory_order_relaxed);
    row_.store(c.row, std::memory_order_relaxed);
    is_running_.store(true, std::memory_order_relaxed);
    serial_.store(serial + 2, std::memory_order_release);
  }
  void end() noexcept { is_running_.store(false, std::memory_order_release); }
  /// The key, or the row, of the call that has begun.
  void set_key(std::string_view key) noexcept { key_.store(packed(key), std::memory_order_relaxed); }
  void set_row(std::uint64_t id) noexcept { row_.store(id, std::memory_order_relaxed); }

  struct seen {
    user_call call;  ///< without a name: there was none, or it was just being written
    bool is_running = false;
  };
  /// Signal-safe. The memory of the key may be gone if another thread reads it, or when the call has ended.
  [[nodiscard]] seen read() const noexcept {
    const auto before = serial_.load(std::memory_order_acquire);
    const auto key = key_.load(std::memory_order_relaxed);
    seen s{{name_.load(std::memory_order_relaxed),
            function_.load(std::memory_order_relaxed),
            {reinterpret_cast<const char*>(key & address_mask), key >> address_bits},
            row_.load(std::memory_order_relaxed)},
           is_running_.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 != 0 || serial_.load(std::memory_order_relaxed) != before) return {};
    return s;
  }

 private:
  // Address and length in one word, so that they cannot be of different keys. No name is longer than 65,535 bytes.
  static constexpr unsigned address_bits = 48;
  static constexpr std::uint64_t address_mask = (std::uint64_t{1} << address_bits) - 1;
  static std::uint64_t packed(std::string_view key) noexcept {
    const auto bytes = std::min<std::uint64_t>(key.size(), ~std::uint64_t{0} >> address_bits);
    return bytes << address_bits | (reinterpret_cast<std::uintptr_t>(key.data()) & address_mask);
  }

  std::atomic<std::uint32_t> serial_{0};
  std::atomic<bool> is_running_{false};
  std::atomic<const std::string*> name_{nullptr};
  std::atomic<std::uint64_t> function_{0};
  std::atomic<std::uint64_t> key_{0};
  std::atomic<std::uint64_t> row_{user_call::no_row};
};

/// The call of this thread. Cost: a store per member.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local published_call current_call{};

namespace last_words {

struct words {
  std::uint64_t function = 0;  ///< its id; 0: none
  std::string how;             ///< "SIGSEGV", "exit(3)"; empty: it is still running
  std::string where;           ///< "libx.so:f at "k""
  bool is_cut_off = false;     ///< the connections of the process are closed: only new ones work
};

/// From now on what ends the process is reported, on stderr and to `main`, which is sent the signal `wake`, if a user
/// function is to blame: a fatal signal, exit or quick_exit in the function, or in a thread that a plug-in has started,
/// and what follows when a function has closed the descriptors of the process. The thread that ends the process waits
/// until `passed_on`, once and at most 1.5 s. `restricts`: threads that run code of a user's library also report _exit,
/// and the signals of system_call_filter.hpp that it sends to its process, and can start no processes. Not covered:
/// signals from other processes, and from timers that a function has set.
void install(std::uint32_t slot, pthread_t main, int wake, bool restricts);
/// For a thread that calls user functions: gives it a signal stack, so that its own stack overflow can be reported.
/// No-op before `install`.
void prepare_thread();
/// Before a user's library is loaded, by the thread that loads it: if `install` has asked for it, restricts this thread
/// now, and others before their next user call. A server that runs only the framework's own functions does not pay for
/// the filter. Where the system has none, says so on stderr, once.
void admit_user_code() noexcept;
/// For in_user_call: restricts the calling thread.
void restrict_thread() noexcept;
inline constinit std::atomic<bool> has_user_code{false};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local bool is_thread_restricted = false;
/// The report, once. Thread-safety: any thread.
[[nodiscard]] std::optional<words> heard();
/// If the descriptors of the process are closed, which a thread may have noticed as an error: reports the function to
/// blame. Returns: whether it has. Thread-safety: any thread.
bool notice_closed_descriptors() noexcept;
/// Lets the thread that ends the process proceed. Thread-safety: any thread.
void passed_on() noexcept;
/// Asks a thread what it is executing, without stopping it. If it is in a user function, `heard` soon returns which,
/// unless it was just entering it: ask again.
void ask(pthread_t thread) noexcept;

}  // namespace last_words

/// While it exists the calling thread is in this call.
class in_user_call {
 public:
  explicit in_user_call(const user_call& c) noexcept {
    // A thread that has got a user's function sees that its library was admitted.
    if (last_words::has_user_code.load(std::memory_order_relaxed) && !last_words::is_thread_restricted)
      last_words::restrict_thread();
    current_call.begin(c);
  }
  ~in_user_call() { current_call.end(); }
  in_user_call(const in_user_call&) = delete;
  in_user_call& operator=(const in_user_call&) = delete;
};

}  // namespace paracel::srv
