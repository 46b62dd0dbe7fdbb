// SPDX-License-Identifier: BSD-3-Clause
//
// What a server says when a user function ends it: which function, and at which key.
//
//   the thread in the function  --a signal, exit()-->  writes the words, wakes the main thread, waits for a moment
//   the main thread             --leave with the words-->  the scheduler, which lets nobody call the function again
//
// Without it the request that ended a server would be sent again to the servers with copies, and end them in turn.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paracel::srv {

/// What a thread does in the code of users. What it points to outlives the call.
struct user_call {
  const std::string* name = nullptr;  ///< of the function, or what else it is; null: nothing
  std::uint64_t function = 0;         ///< its id; 0: no function, but a loader of plug-ins
  std::string_view key{};             ///< at which it works; of a row its name, or the name of its table
  std::uint64_t row = no_row;         ///< the id of a row
  static constexpr std::uint64_t no_row = ~std::uint64_t{0};
};

/// Of the calling thread. Cost: a store for each member that is set; read by the thread itself, in a signal handler.
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
  std::string how;             ///< "SIGSEGV", "exit(3)"; empty: it still runs
  std::string where;           ///< "libx.so:f at key "k""
};

/// From now on the deadly signals, exit and quick_exit of a thread in a user function are told: on stderr, and to
/// `main`, which is sent the signal `wake`. A thread that ends the process waits until `passed_on`, at most 1.5 s. What
/// _exit and SIGKILL end is not told, nor what a thread does that a user function has started.
void install(std::uint32_t slot, pthread_t main, int wake);
/// Gives the calling thread a stack for signals, so that the overflow of its own can be told. Nothing before `install`.
void prepare_thread();
/// What has been said, once. Thread-safety: any thread.
[[nodiscard]] std::optional<words> heard();
/// The thread that ends the process may go on. Thread-safety: any thread.
void passed_on() noexcept;
/// Asks a thread what it does; it goes on. `heard` tells in a moment, if it is in a user function.
void ask(pthread_t thread) noexcept;

}  // namespace last_words
}  // namespace paracel::srv
