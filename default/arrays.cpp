// SPDX-License-Identifier: BSD-3-Clause
//
// The functions that create partitioned arrays (paracel/array.hpp): initial values that need not be sent.
#include <paracel/update.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>

namespace {

using namespace paracel;

// A piece is about a megabyte; this bounds what a corrupt or malicious request can allocate.
constexpr std::uint64_t most_piece_bytes = std::uint64_t{256} << 20;

/// Fills `memory` with copies of `number`.
void repeat(std::byte* memory, std::uint64_t bytes, const std::byte* number, std::size_t width) noexcept {
  for (std::uint64_t at = 0; at + width <= bytes; at += width) std::memcpy(memory + at, number, width);
}

std::byte* room(const abi::sink* out, value_tag tag, std::uint64_t bytes) {
  auto* memory = out->place(out->context, static_cast<std::uint8_t>(tag), bytes);
  if (memory == nullptr) throw std::runtime_error("no memory for a value of " + std::to_string(bytes) + " bytes");
  return memory;
}

/// Keeps the current value.
std::int32_t keep(const update_result*, const abi::value* current, const abi::value*, const abi::sink* out,
                  abi::error_text* error) noexcept {
  return update_detail::guarded(error, [&] {
    auto* memory = room(out, static_cast<value_tag>(current->tag), current->bytes);
    if (current->bytes != 0) std::memcpy(memory, current->data, current->bytes);
  });
}

/// Every element of an array becomes the delta, a number of the same type.
std::int32_t fill(const update_result*, const abi::value* current, const abi::value* delta, const abi::sink* out,
                  abi::error_text* error) noexcept {
  return update_detail::guarded(error, [&] {
    const auto tag = static_cast<value_tag>(current->tag);
    if (!is_array(tag) || element_of(tag) != static_cast<value_tag>(delta->tag)) {
      throw type_error("an array is filled with one number of its element type");
    }
    repeat(room(out, tag, current->bytes), current->bytes, delta->data, element_bytes(tag));
  });
}

/// (count, type tag of a number, its bits) becomes an array of `count` copies of that number.
std::int32_t begin_array(const update_result*, const abi::value* delta, const abi::sink* out,
                         abi::error_text* error) noexcept {
  return update_detail::guarded(error, [&] {
    const auto [count, tag, bits] =
        decode<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>>(update_detail::view_of(*delta));
    const auto element = static_cast<value_tag>(tag);
    if (tag > 0xff || !is_known(element) || !is_numeric(element) || is_array(element)) {
      throw type_error("the elements of an array must be numbers");
    }
    const auto width = element_bytes(element);
    if (count > most_piece_bytes / width) throw std::runtime_error("a piece of an array is at most 256 MiB");
    const auto array = static_cast<value_tag>(tag | 0x10U);
    // The number is in the low bytes: values are little-endian.
    repeat(room(out, array, count * width), count * width, reinterpret_cast<const std::byte*>(&bits), width);
  });
}

update_result general(const char* value_type, const char* delta_type, decltype(update_result::apply) apply) {
  auto u = update_detail::blank_update(value_type, delta_type);
  u.apply = apply;
  return u;
}

update_result keep_or_begin() {
  auto u = general("any array", "a count and a number", keep);
  u.initialise = begin_array;
  return u;
}

}  // namespace

extern "C" {
extern paracel::update_result paracel_keep;
extern paracel::update_result paracel_fill;
extern paracel::update_result paracel_begin_array;
}

paracel::update_result paracel_keep = general("any value", "any value", keep);
paracel::update_result paracel_fill = general("any array", "one number", fill);
paracel::update_result paracel_begin_array = keep_or_begin();
