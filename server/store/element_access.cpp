// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/element_access.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <paracel/codec.hpp>
#include <paracel/detail/bytes.hpp>

namespace paracel::srv {

using net::status;

namespace {

constexpr std::size_t offset_bytes = sizeof(std::uint32_t);
constexpr const char* unequal = "the payload is not a list of offsets with a number for each";

std::uint32_t offset_at(const element_choice& choice, std::size_t i) noexcept {
  return load_field<std::uint32_t>(choice.offsets.data() + i * offset_bytes);
}

/// ok: `value` is an array that has all the elements.
status check(const value_view& value, const element_choice& choice, std::string& why) {
  if (!is_array(value.tag)) {
    why = std::string("value is ") + name_of(value.tag) + ": only arrays of numbers have elements";
    return status::type_mismatch;
  }
  const auto size = value.bytes.size() / element_bytes(value.tag);
  const auto of = " of an array of " + std::to_string(size);
  if (choice.is_range) {
    if (choice.first <= size && choice.count <= size - choice.first) return status::ok;
    why = "there are no elements " + std::to_string(choice.first) + " to " +
          std::to_string(std::uint64_t{choice.first} + choice.count) + of;
    return status::bad_request;
  }
  // The maximum first and then one comparison: a branch-free loop.
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < choice.count; ++i) greatest = std::max(greatest, offset_at(choice, i));
  if (choice.count == 0 || greatest < size) return status::ok;
  why = "there is no element " + std::to_string(greatest) + of;
  return status::bad_request;
}

template <class Bits>
void gather(const std::byte* from, const element_choice& choice, std::byte* to) noexcept {
  for (std::size_t i = 0; i < choice.count; ++i) {
    std::memcpy(to + i * sizeof(Bits), from + offset_at(choice, i) * sizeof(Bits), sizeof(Bits));
  }
}
void gather(std::size_t width, const std::byte* from, const element_choice& choice, std::byte* to) noexcept {
  if (width == 4) gather<std::uint32_t>(from, choice, to);
  else gather<std::uint64_t>(from, choice, to);
}

/// Writes back what `gather` has read.
void scatter(std::size_t width, const std::byte* from, const element_choice& choice, std::byte* to) noexcept {
  for (std::size_t i = 0; i < choice.count; ++i) {
    std::memcpy(to + offset_at(choice, i) * width, from + i * width, width);
  }
}

/// Adds one element after the other; T is unsigned for integers, which add modulo 2^n.
template <class T>
void scatter_add(const element_choice& choice, const std::byte* numbers, std::byte* to) noexcept {
  auto* values = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < choice.count; ++i) values[offset_at(choice, i)] += load_field<T>(numbers + i * sizeof(T));
}

void scatter_add(const element_change& change, std::byte* to) noexcept {
  const auto* numbers = change.numbers.bytes.data();
  switch (element_of(change.numbers.tag)) {
    case value_tag::i32:
      return scatter_add<std::uint32_t>(change.where, numbers, to);
    case value_tag::i64:
      return scatter_add<std::uint64_t>(change.where, numbers, to);
    case value_tag::f32:
      return scatter_add<float>(change.where, numbers, to);
    default:
      return scatter_add<double>(change.where, numbers, to);
  }
}

status status_of(abi::outcome o) noexcept {
  return o == abi::type_mismatch ? status::type_mismatch : status::plugin_failed;
}

/// One call for each element, in order. If one fails all are restored.
status update_each(const loaded_update& f, const element_change& change, std::span<std::byte> value, std::string& why) {
  const auto tag = element_of(change.numbers.tag);
  const auto width = element_bytes(tag);
  std::vector<std::byte> before;
  if ((f.function->flags & abi::no_throw) == 0) {
    before.resize(change.where.count * width);
    gather(width, value.data(), change.where, before.data());
  }
  expected_calls soon(&f);
  if (soon.wanted()) [[unlikely]] {
    for (std::size_t i = 0; i < change.where.count; ++i)
      soon.add({tag, value.subspan(offset_at(change.where, i) * width, width)},
               {tag, change.numbers.bytes.subspan(i * width, width)});
    soon.run();
  }
  for (std::size_t i = 0; i < change.where.count; ++i) {
    auto ended = abi::ok;
    const value_view delta{tag, change.numbers.bytes.subspan(i * width, width)};
    if (apply_in_place(f, tag, value.subspan(offset_at(change.where, i) * width, width), delta, why, &ended)) continue;
    scatter(width, before.data(), change.where, value.data());
    return status_of(ended);
  }
  return status::ok;
}

}  // namespace

const char* parse_pull_at(const value_view& payload, bool is_range, element_choice& out) noexcept {
  out = {};
  out.is_range = is_range;
  if (payload.tag != value_tag::i32_array) return "elements must be selected by an i32 array";
  if (payload.bytes.size() % offset_bytes != 0) return "offsets must have 4 bytes each";
  if (is_range) {
    if (payload.bytes.size() != 2 * offset_bytes) return "a range must be a first element and a count";
    out.first = load_field<std::uint32_t>(payload.bytes.data());
    out.count = load_field<std::uint32_t>(payload.bytes.data() + offset_bytes);
    return nullptr;
  }
  if (payload.bytes.size() / offset_bytes > UINT32_MAX) return "too many offsets";
  out.count = static_cast<std::uint32_t>(payload.bytes.size() / offset_bytes);
  out.offsets = payload.bytes;
  return nullptr;
}

const char* parse_update_at(const value_view& payload, bool is_range, element_change& out) noexcept {
  out = {};
  out.where.is_range = is_range;
  if (!is_array(payload.tag)) return "elements must be changed by an array of numbers";
  const auto width = element_bytes(payload.tag);
  auto numbers = payload.bytes;
  if (is_range) {
    if (payload.bytes.size() < offset_bytes) return "a range must begin with its first element";
    out.where.first = load_field<std::uint32_t>(payload.bytes.data());
    numbers = payload.bytes.subspan(offset_bytes);
    if (numbers.size() % width != 0) return "the numbers of a range are not whole";
  } else {
    if (payload.bytes.size() % (offset_bytes + width) != 0) return unequal;
    const auto count = payload.bytes.size() / (offset_bytes + width);
    out.where.offsets = payload.bytes.first(count * offset_bytes);
    numbers = payload.bytes.subspan(count * offset_bytes);
  }
  if (numbers.size() / width > UINT32_MAX) return "too many elements";
  out.where.count = static_cast<std::uint32_t>(numbers.size() / width);
  out.numbers = {payload.tag, numbers};
  return nullptr;
}

status pull_elements(const value_view& value, const element_choice& choice, value_view& out,
                     std::vector<std::byte>& memory, std::string& why) {
  if (const auto s = check(value, choice, why); s != status::ok) return s;
  const auto width = element_bytes(value.tag);
  if (choice.is_range) {
    out = {value.tag, value.bytes.subspan(choice.first * width, choice.count * width)};
    return status::ok;
  }
  memory.resize(choice.count * width);
  gather(width, value.bytes.data(), choice, memory.data());
  out = {value.tag, memory};
  return status::ok;
}

status fits_elements(const loaded_update& f, const value_view& value, const element_change& change, std::string& why) {
  if (const auto s = check(value, change.where, why); s != status::ok) return s;
  const auto wanted = static_cast<value_tag>(f.function->value_tag);
  if (value.tag != change.numbers.tag || (wanted != value_tag::none && wanted != element_of(value.tag))) {
    why = f.name + ": value is " + name_of(value.tag) + ", delta is " + name_of(change.numbers.tag) +
          ": elements must be changed by numbers of their own type";
    return status::type_mismatch;
  }
  if (f.function->in_place == nullptr) {
    why = f.name + ": it makes a new value from the whole value; elements need a function made with update_in_place";
    return status::type_mismatch;
  }
  return status::ok;
}

status update_elements(const loaded_update& f, table& t, entry& e, const element_change& change, std::string& why) {
  if (const auto s = fits_elements(f, e.view(), change, why); s != status::ok) return s;
  const auto value = t.open(e);
  if (change.where.is_range) {
    const auto width = element_bytes(e.tag());
    auto ended = abi::ok;
    const auto part = value.subspan(change.where.first * width, change.where.count * width);
    if (!apply_in_place(f, e.tag(), part, change.numbers, why, &ended)) return status_of(ended);
  } else if (f.additive) {
    scatter_add(change, value.data());
  } else if (const auto s = update_each(f, change, value, why); s != status::ok) {
    return s;
  }
  t.changed(e);
  return status::ok;
}

}  // namespace paracel::srv
