// SPDX-License-Identifier: BSD-3-Clause
//
// Messages of ps apps as bytes. The header around them is that of every message between processes (net/protocol.hpp,
// verb `message`); of its fields `rank` is the sender's node id, and `function` the number of the receiver's messages
// that the sender has received, which acknowledges them.
//
//     0   u8   version
//     1   u8   Control::Command
//     2   u8   1 request, 2 push, 4 pull, 8 simple app, 16 failed, 32 the request's keys
//     3   u8   number of arrays
//     4   i32  head, app, customer, timestamp, sender, receiver, priority
//     32  u32  the process that the request is from
//     36  u32  bytes of the text
//     40       for each array: u64 bytes, u32 type, u32 1 if it is the tail
//              the text, the arrays that are not the tail
#pragma once

#include <cstddef>
#include <span>

#include <paracel/detail/bytes.hpp>

#include "core/shared_buffer.hpp"
#include "ps/internal/message.h"

namespace paracel::ps_compat {

inline constexpr std::size_t most_arrays = 16;

struct encoded_message {
  byte_vector body;
  shared_buffer tail;  ///< the largest array, if it is large; shares its memory
};

/// Cost: copies all arrays but one. Throws: network_error when what is copied has 4 GiB or more.
[[nodiscard]] encoded_message encode(const ::ps::Message& m);
/// Arrays that are not the tail are copied. Throws: protocol_error for what `encode` does not produce.
[[nodiscard]] ::ps::Message decode(std::span<const std::byte> body, shared_buffer tail);

}  // namespace paracel::ps_compat
