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

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paracel::srv {

/// The user code that a thread is executing. What it points to must outlive the call.
struct user_call {
  const std::string* name = nullptr;  ///< of the function or other user code; null: nothing
  std::uint64_t function = 0;         ///< its id; 0: not a function, but the loading of plug-ins
  std::string_view key{};             ///< the key it works on; for a row its name, or the name of its table
  std::uint64_t row = no_row;         ///< the id of a row
  static constexpr std::uint64_t no_row = ~std::uint64_t{0};
};

/// Of the calling thread. Cost: a store per member that is set; read by the thread itself, in a signal handler.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local user_call current_call{};

/// While it exists the calling thread is in this call.
class in_user_call {
 public:
  explicit in_user_call(const user_call& c) noexcept { current_call = c; }
  ~in_user_call() { current_call = {}; }
  in_user_call(const in_user_call&) = delete;
  in_user_call& operator=(const in_user_call&) = delete;
};

namespace last_words {

struct words {
  std::uint64_t function = 0;  ///< its id; 0: none
  std::string how;             ///< "SIGSEGV", "exit(3)"; empty: it is still running
  std::string where;           ///< "libx.so:f at key "k""
};

/// From now on fatal signals, exit and quick_exit of a thread in a user function are reported: on stderr, and to
/// `main`, which is sent the signal `wake`. A thread that ends the process waits until `passed_on`, at most 1.5 s. Not
/// covered: _exit, SIGKILL, and threads that a user function has started.
void install(std::uint32_t slot, pthread_t main, int wake);
/// Gives the calling thread a signal stack, so that its own stack overflow can be reported. No-op before `install`.
void prepare_thread();
/// The report, once. Thread-safety: any thread.
[[nodiscard]] std::optional<words> heard();
/// Lets the thread that ends the process proceed. Thread-safety: any thread.
void passed_on() noexcept;
/// Asks a thread what it is executing, without stopping it. If it is in a user function, `heard` soon returns which.
void ask(pthread_t thread) noexcept;

}  // namespace last_words
}  // namespace paracel::srv
