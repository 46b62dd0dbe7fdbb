// SPDX-License-Identifier: BSD-3-Clause
//
// Values of Python and of the framework.
//
//   float, int                      f64, i64; an int beyond 64 bits is refused
//   an array of float64, float32,   array of that type; any shape, in C order, of which only the length is kept. From a
//     int64 or int32                contiguous array nothing is copied. 0-d arrays and NumPy's scalars: one number
//   a list of int, or of numbers    array of i64, of f64; an empty list is an empty f64 array
//   bool, None, str, bytes, tuple,  packed (MessagePack), as C++ packs bool, std::string, tuples, vectors and maps
//     dict, any other list
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

#include "host.hpp"

namespace paracel::py {

/// Bytes of any origin, aligned for numbers.
using shared_bytes = std::shared_ptr<std::byte>;
inline shared_bytes new_bytes(std::size_t n) {
  auto* p = static_cast<std::byte*>(std::malloc(n == 0 ? 1 : n));
  if (p == nullptr) throw std::bad_alloc();
  return {p, [](std::byte* at) { std::free(at); }};
}

/// A value that was received, or that is sent: then it may refer to memory of Python.
struct any_value {
  value_tag tag = value_tag::none;
  std::size_t size = 0;
  shared_bytes bytes;

  any_value() = default;
  explicit any_value(const value_view& v) : tag(v.tag), size(v.bytes.size()), bytes(new_bytes(v.bytes.size())) {
    if (size != 0) std::memcpy(bytes.get(), v.bytes.data(), size);
  }
  [[nodiscard]] value_view view() const noexcept { return {tag, {bytes.get(), size}}; }
};

/// With the GIL. The result keeps the object alive. Throws: nb::python_error (TypeError) for what is no value.
any_value value_of(nb::handle from);
/// With the GIL: a number, an array that owns its memory, or what was packed.
nb::object to_python(const any_value& v);
/// Numbers as an array of this shape, which shares the bytes.
nb::object array_of(value_tag element, const shared_bytes& bytes, std::span<const std::size_t> shape);
/// An array of integers of 64 bits, with NumPy's own type of that name. They come from nanobind as `long long`, which
/// NumPy takes for another type than int64 where this is `long`.
nb::object with_numpys_type(nb::object array, const char* name);
/// A vector's memory as an array.
template <class T>
nb::object array_of(std::vector<T>&& from) {
  auto* kept = new std::vector<T>(std::move(from));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  auto array = nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
  if constexpr (sizeof(T) == sizeof(std::int64_t) && std::is_integral_v<T>)
    return with_numpys_type(std::move(array), std::is_signed_v<T> ? "int64" : "uint64");
  return array;
}

/// Numbers of an array argument: their type and bytes, which stay in the array.
struct number_view {
  value_tag element = value_tag::none;
  std::span<std::byte> bytes;
  std::vector<std::size_t> shape;
  std::shared_ptr<void> keeps;

  [[nodiscard]] std::size_t count() const noexcept { return bytes.size() / element_bytes(element); }
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};
/// With the GIL. A list of numbers, and an array that is not contiguous, are copied. `what`: names the argument.
/// `element`: converts to this type (where NumPy's "same_kind" rule allows); none: the array's own, which must be one
/// of the four. Throws: nb::python_error (TypeError).
number_view numbers_of(nb::handle from, const char* what, value_tag element = value_tag::none);
/// The memory of a contiguous, writable array of one of the four types. Throws: nb::python_error (TypeError).
number_view writable_numbers_of(nb::handle from, const char* what);
/// Indices: a list or an array of integers. Throws: nb::python_error (TypeError, ValueError for a negative one).
std::vector<std::uint64_t> indices_of(nb::handle from, const char* what);
/// The type that a dtype names: "float64", np.float32, ... Throws: nb::python_error (TypeError).
value_tag element_named(nb::handle dtype);
const char* dtype_name(value_tag element);

/// Calls f(T{}) with the C++ type of an element.
template <class F>
decltype(auto) with_type(value_tag element, F&& f) {
  switch (element) {
    case value_tag::f32:
      return f(float{});
    case value_tag::i32:
      return f(std::int32_t{});
    case value_tag::i64:
      return f(std::int64_t{});
    default:
      return f(double{});
  }
}

}  // namespace paracel::py

namespace paracel {

template <>
class encoded<py::any_value> {
 public:
  explicit encoded(const py::any_value& v) : value_(v) {}
  [[nodiscard]] value_view view() const noexcept { return value_.view(); }

 private:
  const py::any_value& value_;
};
template <>
inline void decode_into<py::any_value>(const value_view& v, py::any_value& out) {
  if (!is_well_formed(v)) throw protocol_error("a value whose length does not fit its type");
  out = py::any_value(v);
}

}  // namespace paracel
