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
template <class F>
decltype(auto) without_gil(F&& f) {
  check_caller();
  const nb::gil_scoped_release released;
  return std::forward<F>(f)();
}

/// A callback of C++ that runs Python: `f` runs with the GIL. An exception of Python becomes a C++ one with the same
/// words and status; the Python exception itself is raised, or is the cause, when that arrives in Python again.
class python_failure : public error {
 public:
  using error::error;
};
[[noreturn]] void rethrow_python(nb::python_error& e);
template <class F>
decltype(auto) with_gil(F&& f) {
  const nb::gil_scoped_acquire held;
  try {
    return std::forward<F>(f)();
  } catch (nb::python_error& e) {
    rethrow_python(e);
  }
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

/// The job of this process: joined by the first call, left by `leave`.
class environment {
 public:
  /// Enters, if this process has not yet. With the GIL.
  static void enter();
  [[nodiscard]] static bool entered() noexcept;
  /// Closes every Paralg, and leaves. `failed`: as a program that an exception ends.
  static void leave(bool failed);
};

void bind_host(nb::module_& m);

}  // namespace paracel::py
