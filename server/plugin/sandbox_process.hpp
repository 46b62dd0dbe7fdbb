// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "server/plugin/sandbox_memory.hpp"

namespace paracel::srv {

/// A process of the sandbox and the memory shared with it. It is killed, with everything it has started, by the
/// destructor, and by the system when the thread that created it ends.
///
/// Thread-safety: only the thread that created it.
class sandbox_process {
 public:
  /// Throws: plugin_error. Cost: starting a program, about a millisecond; shared memory is allocated as it is written.
  sandbox_process(const std::string& program, std::size_t shared_bytes, std::size_t limit_bytes);
  ~sandbox_process();
  sandbox_process(const sandbox_process&) = delete;
  sandbox_process& operator=(const sandbox_process&) = delete;

  /// Its size cannot change, whatever the process does: reading it raises no signal.
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }

  struct result {
    bool done = false;
    /// Number of calls that have begun. If not `done`, the last of them has not ended; if none has begun, no function
    /// is to blame. If `done`, all of them have ended, and the others were returned undone.
    std::size_t begun = 0;
    bool late = false;
    std::string how;  ///< "SIGSEGV", "exit(3)"; empty: done or late
  };
  /// Hands over the `count` calls that were written to the memory. Blocks: until they are done or the process has
  /// ended, each call at most `limit`. After anything but `done` the process is dead; the memory remains. A reply that
  /// was written counts, however the process has ended since. A caller applies the results of calls that have ended,
  /// and no others: what is reported as failed has changed nothing, and what is reported as done is applied.
  [[nodiscard]] result run(std::size_t count, std::uint64_t room_at, std::chrono::milliseconds limit);
  /// Returns memory beyond `at` to the system.
  void release(std::uint64_t at) noexcept;

 private:
  bool has_ended(std::string& how) noexcept;
  void finish() noexcept;
  void end() noexcept;

  int memory_fd_ = -1;
  std::span<std::byte> memory_;
  pid_t pid_ = -1;
  std::uint32_t number_ = 0;
};

}  // namespace paracel::srv
