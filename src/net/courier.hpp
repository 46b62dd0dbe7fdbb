// SPDX-License-Identifier: BSD-3-Clause
//
// A thread that goes on with connections whose owners do not: an owner reads and writes its connections itself, and may
// compute for any length of time between two calls.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "net/mutex.hpp"
#include "net/owned_fd.hpp"

namespace paracel::net {

/// What the courier does for the owner of a connection.
class courier_task {
 public:
  using clock = std::chrono::steady_clock;
  courier_task() = default;
  courier_task(const courier_task&) = delete;
  courier_task& operator=(const courier_task&) = delete;
  virtual ~courier_task() = default;

  /// Does what is possible without waiting. Returns: whether there is nothing left to do.
  virtual bool work(clock::time_point now) = 0;
  /// What the courier waits for: events of a descriptor (-1: none), at most until a time.
  struct wish {
    int fd = -1;
    short events = 0;
    clock::time_point until{};
  };
  [[nodiscard]] virtual wish waits_for() = 0;
  /// Set when the task is handed to the courier, cleared by `work`.
  bool hand_over() noexcept { return !with_courier_.exchange(true); }

 protected:
  std::atomic<bool> with_courier_{false};
};

/// The thread that connects to addresses that nobody listens at yet, and sends what a receiver did not read in time.
/// It starts when it has something to do. Thread-safety: any thread.
class courier {
 public:
  courier() = default;
  courier(const courier&) = delete;
  courier& operator=(const courier&) = delete;
  /// Blocks: until lingering links are done, a fifth of a second at most.
  ~courier();
  void take(const std::shared_ptr<courier_task>& task);

 private:
  void run();
  mutex access_;
  std::vector<std::shared_ptr<courier_task>> fresh_ PARACEL_GUARDED_BY(access_);
  bool stops_ PARACEL_GUARDED_BY(access_) = false;
  owned_fd alarm_;
  std::thread thread_;
};

}  // namespace paracel::net
