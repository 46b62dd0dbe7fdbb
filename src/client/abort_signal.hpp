// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include <paracel/error.hpp>

namespace paracel {

/// How the heartbeat thread tells the working thread that the job has ended. Raised at most once.
/// Thread-safety: any thread.
class abort_signal {
 public:
  /// The first call wins.
  void raise(int status, std::string cause) {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return;
    status_ = status;
    cause_ = std::move(cause);
    raised_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  /// Throws: job_error with the cause, once raised.
  void check() const {
    if (raised()) throw job_error(cause_, status_);
  }
  /// Only after `raised()` is true.
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }
  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  std::atomic<bool> raised_{false};
  std::mutex mutex_;
  int status_ = 0;
  std::string cause_;
};

}  // namespace paracel
