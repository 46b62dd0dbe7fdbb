// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's class for serialising an object. The bytes in a string are those of a current value (its
// tag, then the encoding of codec.hpp), not those that 0.3 wrote.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "paracel_types.hpp"

namespace paracel {

template <class T = str_type>
struct packer {
  packer() = default;
  packer(T v) : value_(std::move(v)) {}  // NOLINT(google-explicit-constructor): as in 0.3

  void pack(str_type& bytes) const {
    const encoded<T> e(value_);
    const auto view = e.view();
    bytes.assign(1, static_cast<char>(view.tag));
    bytes.append(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
  }
  void pack(msgpack::sbuffer& buffer) const { msgpack::pack(&buffer, value_); }

  /// Throws: type_error when the bytes hold something else, protocol_error when they are corrupt.
  [[nodiscard]] T unpack(const str_type& bytes) const {
    if (bytes.empty()) throw protocol_error("packer: nothing to unpack");
    const auto all = std::as_bytes(std::span(bytes));
    return decode<T>(value_view{static_cast<value_tag>(all.front()), all.subspan(1)});
  }
  [[nodiscard]] T unpack(const msgpack::sbuffer& buffer) const {
    return decode<T>(value_view{value_tag::packed, std::as_bytes(std::span(buffer.data(), buffer.size()))});
  }

 private:
  T value_{};
};

}  // namespace paracel
