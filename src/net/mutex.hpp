// SPDX-License-Identifier: BSD-3-Clause
//
// A mutex that declares what it guards: clang's thread safety analysis (-Wthread-safety) then rejects code that
// accesses a member without its lock. Other compilers see std::mutex.
//
//     mutex mutex_;
//     std::string text_ PARACEL_GUARDED_BY(mutex_);
//     ...
//     const mutex_lock lock(mutex_);
//     text_ = "...";
//
// Source: clang's documentation, "Thread Safety Analysis".
#pragma once

#include <mutex>

#ifdef __clang__
#define PARACEL_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define PARACEL_THREAD_ANNOTATION(...)
#endif

/// On a member: it is accessed only with the mutex held.
#define PARACEL_GUARDED_BY(mutex) PARACEL_THREAD_ANNOTATION(guarded_by(mutex))
/// On a function: its caller holds the mutex.
#define PARACEL_REQUIRES(mutex) PARACEL_THREAD_ANNOTATION(requires_capability(mutex))

namespace paracel {

class PARACEL_THREAD_ANNOTATION(capability("mutex")) mutex {
 public:
  void lock() PARACEL_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() PARACEL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class mutex_lock;
  std::mutex mutex_;
};

/// Holds a mutex while alive.
class PARACEL_THREAD_ANNOTATION(scoped_lockable) mutex_lock {
 public:
  explicit mutex_lock(mutex& m) PARACEL_THREAD_ANNOTATION(acquire_capability(m)) : lock_(m.mutex_) {}
  ~mutex_lock() PARACEL_THREAD_ANNOTATION(release_capability()) {}
  mutex_lock(const mutex_lock&) = delete;
  mutex_lock& operator=(const mutex_lock&) = delete;

  /// For a condition variable, which releases the mutex while it waits and reacquires it before it returns.
  [[nodiscard]] std::unique_lock<std::mutex>& native() noexcept { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace paracel
