// SPDX-License-Identifier: BSD-3-Clause
#include "npy.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include <paracel/error.hpp>
#include <paracel/npy_header.hpp>

#include "run_log.hpp"

namespace paracel::alg {

namespace {

constexpr std::size_t header_alignment = 64;  // bytes; the header is padded to a multiple of it
constexpr std::size_t dimension_limit = 8;

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie in memory");

/// Converts `from` to `to`; false if the value has no exact representation.
template <class To, class From>
bool converts(From from, To& to) {
  if constexpr (std::is_same_v<To, From>) {
    to = from;
    return true;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    to = static_cast<To>(from);
    return std::in_range<To>(from);
  } else if constexpr (std::is_integral_v<To>) {
    // 2^63 and 2^64 are exact in both floating-point types, the largest integers below them are not.
    const auto wide = static_cast<double>(from);
    constexpr double above = std::is_signed_v<To> ? 0x1p63 : 0x1p64;
    constexpr double least = std::is_signed_v<To> ? -0x1p63 : 0.0;
    if (!(wide >= least && wide < above) || wide != std::trunc(wide)) return false;
    to = static_cast<To>(wide);
    return true;
  } else if constexpr (std::is_integral_v<From>) {
    to = static_cast<To>(from);
    // Above the type's precision the value may have been rounded; converting it back shows that.
    constexpr double above = std::is_signed_v<From> ? 0x1p63 : 0x1p64;
    return static_cast<double>(to) < above && static_cast<From>(to) == from;
  } else {
    to = static_cast<To>(from);
    return std::isnan(from) || static_cast<From>(to) == from;
  }
}

}  // namespace

const char* npy_name(npy_type type) noexcept {
  switch (type) {
    case npy_type::float64:
      return "<f8";
    case npy_type::float32:
      return "<f4";
    case npy_type::int64:
      return "<i8";
    case npy_type::uint64:
      break;
  }
  return "<u8";
}

template <npy_number T>
std::vector<T> npy_array::as() const {
  std::vector<T> out(size());
  with_type(type, [&](auto kind) {
    using element = decltype(kind);
    for (std::size_t i = 0; i < out.size(); ++i) {
      element e{};
      std::memcpy(&e, bytes.data() + i * sizeof e, sizeof e);
      if (!converts(e, out[i])) {
        std::string found;
        append_text(found, e);
        throw type_error("element " + std::to_string(i) + " of an array of " + npy_name(type) + " is " + found +
                         ", which cannot be converted to " + npy_name(npy_type_of<T>()));
      }
    }
  });
  return out;
}
template std::vector<double> npy_array::as() const;
template std::vector<float> npy_array::as() const;
template std::vector<std::int64_t> npy_array::as() const;
template std::vector<std::uint64_t> npy_array::as() const;

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string s = "(";
  for (const auto n : shape) s += std::to_string(n) + ", ";
  if (shape.size() > 1) s.resize(s.size() - 2);
  if (shape.size() == 1) s.pop_back();
  return s + ")";
}

std::string npy_header_of(npy_type type, std::span<const std::uint64_t> shape) {
  std::string dictionary =
      std::string("{'descr': '") + npy_name(type) + "', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  constexpr std::size_t before = npy_magic.size() + 4;
  const std::size_t used = before + dictionary.size() + 1;
  dictionary.append((header_alignment - used % header_alignment) % header_alignment, ' ');
  dictionary += '\n';
  std::string header(npy_magic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dictionary.size() & 0xffU);
  header += static_cast<char>(dictionary.size() >> 8U);
  return header + dictionary;
}

std::optional<std::uint64_t> elements_of(std::span<const std::uint64_t> shape, std::size_t element) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  const std::uint64_t most = (std::uint64_t{1} << 60U) / element;
  std::uint64_t n = 1;
  for (const auto s : shape) {
    if (s > most / n) return std::nullopt;
    n *= s;
  }
  return n;
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error(path + ": cannot be read: " + std::strerror(errno));
  std::string text;
  char block[1U << 16U];
  while (in.read(block, sizeof block) || in.gcount() > 0) text.append(block, static_cast<std::size_t>(in.gcount()));
  if (in.bad()) throw data_error(path + ": cannot be read: " + std::strerror(errno));
  return text;
}

void write_npy(const std::string& path, npy_type type, std::span<const std::byte> bytes,
               std::span<const std::uint64_t> shape) {
  const auto n = shape.size() <= dimension_limit ? elements_of(shape, bytes_of(type)) : std::nullopt;
  if (!n || *n * bytes_of(type) != bytes.size()) {
    throw error(path + ": found " + std::to_string(bytes.size() / bytes_of(type)) + " elements, want the shape " +
                shape_text(shape));
  }
  whole_file file(path);
  file.write(npy_header_of(type, shape));
  file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  file.finish();
}

npy_array read_npy(const std::string& path) {
  const auto text = read_whole(path);
  const std::string_view all = text;
  const auto wrong = [&](const std::string& found, const std::string& wanted) -> data_error {
    return data_error(path + ": found " + found + ", want " + wanted);
  };
  const auto header = read_npy_header(path, all);
  npy_array array;
  bool known = false;
  const char order = header.type.front();
  for (const auto type : npy_types) {
    if (header.type.substr(1) != npy_name(type) + 1) continue;
    known = order == '<' || order == '>' || order == '=';
    array.type = type;
  }
  if (!known) throw wrong("elements of type " + header.type, "<f8, <f4, <i8 or <u8");
  if (header.fortran_order) throw wrong("an array in Fortran order", "an array in C order");
  if (header.shape.size() > dimension_limit)
    throw wrong("the shape " + shape_text(header.shape), "up to " + std::to_string(dimension_limit) + " numbers");
  array.shape = header.shape;
  const auto count = elements_of(array.shape, bytes_of(array.type));
  const auto data = all.substr(header.data_begin);
  if (!count || data.size() / bytes_of(array.type) != *count || data.size() % bytes_of(array.type) != 0) {
    throw wrong(std::to_string(data.size()) + " bytes of elements",
                "the shape " + shape_text(array.shape) + " of " + header.type);
  }
  array.bytes.resize(data.size());
  if (!data.empty()) std::memcpy(array.bytes.data(), data.data(), data.size());
  if (order == '>') {
    const auto width = static_cast<std::ptrdiff_t>(bytes_of(array.type));
    for (auto at = array.bytes.begin(); at != array.bytes.end(); at += width) std::reverse(at, at + width);
  }
  return array;
}

}  // namespace paracel::alg
