// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/partition_records.hpp"

#include <array>
#include <limits>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

namespace paracel::srv {
namespace {

std::uint32_t length_of(std::span<const std::byte> part) {
  if (part.size() > std::numeric_limits<std::uint32_t>::max()) throw error("a part of a record has 4 GiB or more");
  return static_cast<std::uint32_t>(part.size());
}

}  // namespace

void append(std::vector<std::byte>& out, const record& r) {
  const auto key = length_of(r.key);
  const auto value = length_of(r.value);
  const auto state = length_of(r.state);
  std::array<std::byte, record_front_bytes> front;
  store_fields(front.data(), r.kind);
  store_fields(front.data() + 1, r.tag);
  store_fields(front.data() + 2, r.flags);
  store_fields(front.data() + 4, key);
  store_fields(front.data() + 8, r.a);
  store_fields(front.data() + 16, value);
  store_fields(front.data() + 20, state);
  out.insert(out.end(), front.begin(), front.end());
  out.insert(out.end(), r.key.begin(), r.key.end());
  out.insert(out.end(), r.value.begin(), r.value.end());
  out.insert(out.end(), r.state.begin(), r.state.end());
}

void append(std::vector<std::byte>& out, record r, const staged_front& front) {
  std::array<std::byte, staged_front::bytes> state{};
  store_fields(state.data(), front.clock);
  store_fields(state.data() + 4, front.rank);
  store_fields(state.data() + 8, front.arrival);
  store_fields(state.data() + 16, front.what);
  store_fields(state.data() + 18, front.flags);
  store_fields(state.data() + 20, front.count);
  store_fields(state.data() + 24, front.function);
  r.state = state;
  append(out, r);
}

bool read(std::span<const std::byte> bytes, staged_front& out) noexcept {
  if (bytes.size() != staged_front::bytes || bytes[17] != std::byte{0}) return false;
  out.clock = load_field<std::uint32_t>(bytes.data());
  out.rank = load_field<std::uint32_t>(bytes.data() + 4);
  out.arrival = load_field<std::uint64_t>(bytes.data() + 8);
  out.what = load_field<std::uint8_t>(bytes.data() + 16);
  out.flags = load_field<std::uint16_t>(bytes.data() + 18);
  out.count = load_field<std::uint32_t>(bytes.data() + 20);
  out.function = load_field<std::uint64_t>(bytes.data() + 24);
  return true;
}

bool records::next(record& out) noexcept {
  if (rest_.empty() || bad_) return false;
  bad_ = true;
  if (rest_.size() < record_front_bytes) return false;
  const auto* at = rest_.data();
  const auto kind = load_field<std::uint8_t>(at);
  if (kind < static_cast<std::uint8_t>(record_kind::put) || kind > static_cast<std::uint8_t>(record_kind::clock)) {
    return false;
  }
  const std::size_t key = load_field<std::uint32_t>(at + 4);
  const std::size_t value = load_field<std::uint32_t>(at + 16);
  const std::size_t state = load_field<std::uint32_t>(at + 20);
  const auto room = rest_.size() - record_front_bytes;
  if (key > room || value > room - key || state > room - key - value) return false;
  out.kind = static_cast<record_kind>(kind);
  out.tag = load_field<std::uint8_t>(at + 1);
  out.flags = load_field<std::uint16_t>(at + 2);
  out.a = load_field<std::uint64_t>(at + 8);
  out.key = rest_.subspan(record_front_bytes, key);
  out.value = rest_.subspan(record_front_bytes + key, value);
  out.state = rest_.subspan(record_front_bytes + key + value, state);
  rest_ = rest_.subspan(record_front_bytes + key + value + state);
  bad_ = false;
  return true;
}

}  // namespace paracel::srv
