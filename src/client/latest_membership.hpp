// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/membership.hpp"
#include "net/mutex.hpp"

namespace paracel {

/// Where the thread that receives a new membership leaves it for the clients of this process.
/// Thread-safety: any thread.
class latest_membership {
 public:
  /// One older than the current is ignored.
  void put(membership m) {
    const mutex_lock lock(mutex_);
    if (m.epoch <= epoch_.load(std::memory_order_relaxed)) return;
    const auto epoch = m.epoch;
    newest_ = std::make_shared<const membership>(std::move(m));
    epoch_.store(epoch, std::memory_order_release);
  }
  /// The newest epoch; 0 before the first.
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_acquire); }
  /// Null before the first.
  [[nodiscard]] std::shared_ptr<const membership> newest() const {
    const mutex_lock lock(mutex_);
    return newest_;
  }

 private:
  std::atomic<std::uint32_t> epoch_{0};
  mutable mutex mutex_;
  std::shared_ptr<const membership> newest_ PARACEL_GUARDED_BY(mutex_);
};

}  // namespace paracel
