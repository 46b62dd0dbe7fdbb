// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "client/kvclt.hpp"

namespace paracel {

/// What a worker has used since it joined, for the launcher's report: time from the system's accounting of threads,
/// which costs the algorithm nothing, and messages, which it counts itself. Thread-safety: any thread, except for the
/// constructor.
class usage {
 public:
  /// On the thread that runs the algorithm.
  usage();
  usage(const usage&) = delete;
  usage& operator=(const usage&) = delete;

  void add(const client_context::traffic& more) noexcept {
    requests_.fetch_add(more.requests, std::memory_order_relaxed);
    sent_bytes_.fetch_add(more.sent_bytes, std::memory_order_relaxed);
    received_bytes_.fetch_add(more.received_bytes, std::memory_order_relaxed);
  }
  /// After a commit: how many iterations this worker is ahead of the slowest.
  void set_ahead(std::uint32_t iterations) noexcept { ahead_.store(iterations, std::memory_order_relaxed); }
  /// Since it joined.
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  /// {"seconds" since it joined, "cpu" and of it "system": of the algorithm's thread, "delayed": it could run and had
  /// no processor, "background": CPU time of other threads, "peak_bytes" resident, "requests","sent_bytes",
  /// "received_bytes", "ahead" at the last commit}. What the system does not tell is left out. Cost: two small files of
  /// /proc, 20 us.
  [[nodiscard]] nlohmann::json report() const;

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const long thread_;  // the system's number of it
  const std::uint64_t delayed_before_;
  std::atomic<std::uint32_t> ahead_{0};
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<std::uint64_t> received_bytes_{0};
};

}  // namespace paracel
