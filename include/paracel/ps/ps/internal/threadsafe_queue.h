// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace ps {

/// Thread-safety: any thread.
template <class T>
class ThreadsafeQueue {
 public:
  void Push(T value) {
    {
      const std::lock_guard lock(mutex_);
      values_.push_back(std::move(value));
    }
    arrived_.notify_one();
  }
  /// Blocks: until there is one.
  void WaitAndPop(T* value) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !values_.empty(); });
    *value = std::move(values_.front());
    values_.pop_front();
  }
  /// Returns: whether there was one.
  bool TryPop(T* value) {
    const std::lock_guard lock(mutex_);
    if (values_.empty()) return false;
    *value = std::move(values_.front());
    values_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> values_;
};

}  // namespace ps
