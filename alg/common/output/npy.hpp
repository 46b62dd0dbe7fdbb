// SPDX-License-Identifier: BSD-3-Clause
//
// Arrays as .npy files.
//
// Source: NumPy Enhancement Proposal 1, versions 1.0 to 3.0 of the format. Written: 1.0, little-endian, C order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace paracel::alg {

enum class npy_type { float64, float32, int64, uint64 };

template <class T>
concept npy_number = std::same_as<T, double> || std::same_as<T, float> || std::same_as<T, std::int64_t> ||
    std::same_as<T, std::uint64_t>;

template <npy_number T>
constexpr npy_type npy_type_of() noexcept {
  if constexpr (std::same_as<T, double>) return npy_type::float64;
  else if constexpr (std::same_as<T, float>) return npy_type::float32;
  else if constexpr (std::same_as<T, std::int64_t>) return npy_type::int64;
  else return npy_type::uint64;
}
/// "<f8", "<f4", "<i8" or "<u8".
const char* npy_name(npy_type type) noexcept;

/// An array of one of these types, as read.
struct npy_array {
  npy_type type = npy_type::float64;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;

  [[nodiscard]] std::uint64_t size() const noexcept {
    std::uint64_t n = 1;
    for (const auto s : shape) n *= s;
    return n;
  }
  /// The elements, converted. Throws: type_error when one does not fit exactly (a fraction as an integer, 2^63 as
  /// int64, 2^53 + 1 as double).
  template <npy_number T>
  [[nodiscard]] std::vector<T> as() const;
};

/// Writes an array in C order, atomically. Throws: error that names the file, or says that shape and size differ.
void write_npy(const std::string& path, npy_type type, std::span<const std::byte> bytes,
               std::span<const std::uint64_t> shape);
template <npy_number T>
void write_npy(const std::string& path, std::span<const T> values, std::vector<std::uint64_t> shape) {
  write_npy(path, npy_type_of<T>(), std::as_bytes(values), shape);
}
template <npy_number T>
void write_npy(const std::string& path, const std::vector<T>& values, std::vector<std::uint64_t> shape = {}) {
  if (shape.empty()) shape.push_back(values.size());
  write_npy(path, npy_type_of<T>(), std::as_bytes(std::span<const T>(values)), shape);
}

/// Reads an array of one of the four types with up to 8 dimensions; both byte orders, C order.
/// Throws: data_error `file: found ..., want ...`.
npy_array read_npy(const std::string& path);

// ---- parts, for other files that contain such arrays

inline constexpr npy_type npy_types[] = {npy_type::float64, npy_type::float32, npy_type::int64, npy_type::uint64};
constexpr std::size_t bytes_of(npy_type type) noexcept { return type == npy_type::float32 ? 4 : 8; }
/// Calls f(T{}) for the type's T.
template <class F>
decltype(auto) with_type(npy_type type, F&& f) {
  switch (type) {
    case npy_type::float64:
      return f(double{});
    case npy_type::float32:
      return f(float{});
    case npy_type::int64:
      return f(std::int64_t{});
    case npy_type::uint64:
      break;
  }
  return f(std::uint64_t{});
}
/// What precedes the elements in the file.
std::string npy_header_of(npy_type type, std::span<const std::uint64_t> shape);
/// As Python writes it: "(3, 2)".
std::string shape_text(std::span<const std::uint64_t> shape);
/// The number of elements, if the size of elements of that many bytes does not overflow.
std::optional<std::uint64_t> elements_of(std::span<const std::uint64_t> shape, std::size_t element);
/// Throws: data_error that names the file.
std::string read_whole(const std::string& path);

}  // namespace paracel::alg
