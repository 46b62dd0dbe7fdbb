// SPDX-License-Identifier: BSD-3-Clause
//
// The payloads of the single-key verbs that hold more than a value:
//
//     update_default   request item: no key, the initial value | request item: no key, the delta
//     cas              u64 expected version | value, unless it travels in a frame of its own
//
// Pure functions over the bytes of a request; results point into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

#include "net/protocol.hpp"

namespace paracel::srv {

struct default_and_delta {
  value_view initial;
  value_view delta;
};

/// False: `payload` is not exactly two items without keys. Whether the two are valid values is not
/// checked.
inline bool parse(std::span<const std::byte> payload, default_and_delta& out) noexcept {
  net::request_items cursor(payload, 2);
  net::request_item initial, delta;
  if (!cursor.next(initial) || !cursor.next(delta) || !cursor.ok()) return false;
  if (!initial.key.empty() || !delta.key.empty()) return false;
  out = {initial.value, delta.value};
  return true;
}

/// Takes the version off the front of cas's payload; the rest is the value. False: too few bytes.
inline bool take_expected(std::span<const std::byte>& payload, std::uint64_t& version) noexcept {
  return take_fields(payload, version);
}

}  // namespace paracel::srv
