// SPDX-License-Identifier: BSD-3-Clause
//
// Packed, unaligned serialisation of numbers and trivially copyable structs in native byte order: frames, blocks of an
// exchange, files. All of it is in this header:
//
//     store_fields(to, a, b)    into memory that is large enough     load_fields(from, a, b)
//     put_fields(bytes, a, b)   appends to a vector of bytes         take_fields(rest, a, b): or false
//     put_bytes(bytes, p, n)    appends n bytes                      byte_reader: or an exception
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include <paracel/error.hpp>

namespace paracel {

using byte_vector = std::vector<std::byte>;

/// Writes the fields at `to`. Returns: the address past the last one.
template <class... Fields>
std::byte* store_fields(std::byte* to, const Fields&... fields) noexcept {
  static_assert((std::is_trivially_copyable_v<Fields> && ...));
  ((std::memcpy(to, &fields, sizeof fields), to += sizeof fields), ...);
  return to;
}

/// Reads the fields at `from`. Returns: the address past the last one.
template <class... Fields>
const std::byte* load_fields(const std::byte* from, Fields&... fields) noexcept {
  static_assert((std::is_trivially_copyable_v<Fields> && ...));
  ((std::memcpy(&fields, from, sizeof fields), from += sizeof fields), ...);
  return from;
}

/// The one field at `from`.
template <class T>
T load_field(const std::byte* from) noexcept {
  T value{};
  load_fields(from, value);
  return value;
}

/// Appends the fields.
template <class... Fields>
void put_fields(byte_vector& to, const Fields&... fields) {
  const auto at = to.size();
  to.resize(at + (sizeof fields + ...));
  store_fields(to.data() + at, fields...);
}

/// Appends one field.
template <class T>
void put_bytes(byte_vector& to, const T& value) {
  put_fields(to, value);
}
/// Appends n values.
template <class T>
void put_bytes(byte_vector& to, const T* values, std::size_t n) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto at = to.size();
  to.resize(at + n * sizeof(T));
  if (n > 0) std::memcpy(to.data() + at, values, n * sizeof(T));
}

/// Takes the fields off the front of `rest`. Returns: false, with both unchanged, when too few bytes remain.
template <class... Fields>
[[nodiscard]] bool take_fields(std::span<const std::byte>& rest, Fields&... fields) noexcept {
  if (rest.size() < (sizeof fields + ...)) return false;
  load_fields(rest.data(), fields...);
  rest = rest.subspan((sizeof fields + ...));
  return true;
}

/// A cursor over bytes from another worker. Throws (every call): protocol_error past their end.
class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> bytes, std::size_t skip = 0) : rest_(bytes) { (void)take(skip); }

  /// The next n bytes. Lifetime: that of the block.
  const std::byte* take(std::size_t n) {
    if (n > rest_.size()) throw protocol_error("a block from another worker is cut short");
    const auto* at = rest_.data();
    rest_ = rest_.subspan(n);
    return at;
  }
  template <class T>
  T get() {
    return load_field<T>(take(sizeof(T)));
  }
  /// n values, into `out`.
  template <class T>
  void get(std::vector<T>& out, std::size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (n > rest_.size() / sizeof(T)) throw protocol_error("a block from another worker is cut short");
    out.resize(n);
    if (n > 0) std::memcpy(out.data(), take(n * sizeof(T)), n * sizeof(T));
  }
  /// The rest, which must be whole values.
  template <class T>
  std::vector<T> rest() {
    std::vector<T> out;
    if (rest_.size() % sizeof(T) != 0) throw protocol_error("a block from another worker is cut short");
    get(out, rest_.size() / sizeof(T));
    return out;
  }
  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace paracel
