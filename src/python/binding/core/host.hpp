// SPDX-License-Identifier: BSD-3-Clause
//
// The interpreter and the framework: who holds the GIL, which thread and process may call, and exceptions both ways.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include <paracel/error.hpp>

namespace nb = nanobind;

namespace paracel::py {

/// Every call of the framework goes through this: `f` runs without the GIL. Convert arguments before it and results
/// after it. Throws: error in a process that was forked after the start, and on another thread than the first one.
void check_caller();
/// Forgets a failure of a callback that an earlier call has dealt with.
void begin_call();
template <class F>
decltype(auto) without_gil(F&& f) {
  check_caller();
  begin_call();
  const nb::gil_scoped_release released;
  return std::forward<F>(f)();
}

/// A Python object that C++ code without the GIL may copy and destroy.
class shared_object {
 public:
  shared_object() = default;
  explicit shared_object(nb::object o) : object_(std::move(o)) {}
  shared_object(const shared_object& other) {
    const nb::gil_scoped_acquire held;
    object_ = other.object_;
  }
  shared_object(shared_object&& other) noexcept : object_(std::move(other.object_)) {}
  shared_object& operator=(shared_object other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~shared_object() {
    if (!object_.is_valid()) return;
    const nb::gil_scoped_acquire held;
    object_.reset();
  }
  [[nodiscard]] const nb::object& get() const noexcept { return object_; }

 private:
  nb::object object_;
};

/// An exception of Python as one of C++, with its words and status.
class python_failure : public error {
 public:
  python_failure(const std::string& what, int status, nb::object value)
      : error(what, status), value_(std::move(value)) {}
  [[nodiscard]] const nb::object& value() const noexcept { return value_.get(); }

 private:
  shared_object value_;
};
[[noreturn]] void rethrow_python(nb::python_error& e);

/// Counts the callbacks that run now, one inside the other.
class callback_scope {
 public:
  callback_scope() noexcept { ++depth_; }
  ~callback_scope() { --depth_; }
  callback_scope(const callback_scope&) = delete;
  callback_scope& operator=(const callback_scope&) = delete;
  [[nodiscard]] static bool inside() noexcept { return depth_ != 0; }

 private:
  static inline int depth_ = 0;  // with the GIL
};

/// A callback of C++ that runs Python: `f` runs with the GIL. When its exception arrives in Python again, it is raised
/// as it was, or is the cause of the error that the framework has made of it.
template <class F>
decltype(auto) with_gil(F&& f) {
  const nb::gil_scoped_acquire held;
  const callback_scope running;
  try {
    return std::forward<F>(f)();
  } catch (nb::python_error& e) {
    rethrow_python(e);
  }
}

/// The job of this process: joined by the first call, left by `leave`.
class environment {
 public:
  /// Enters, if this process has not yet. With the GIL.
  static void enter();
  [[nodiscard]] static bool entered() noexcept;
  /// Which job of this process it is; 0 before the first.
  [[nodiscard]] static int number() noexcept;
  /// Closes every Paralg, and leaves. `failed`: as a program that an exception ends. Throws: error in a callback.
  static void leave(bool failed);
};

void bind_host(nb::module_& m);

}  // namespace paracel::py
