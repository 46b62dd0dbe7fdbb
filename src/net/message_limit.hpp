// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <paracel/error.hpp>

#include "net/transport.hpp"

namespace paracel::net {

/// Rejects a message that the receiver would not accept. ZeroMQ reacts to an oversize frame by closing the connection
/// without an error in either program, so the sender has to check. Throws: network_error (not applied).
inline void check_message_size(const outgoing& message, const transport_limits& limits) {
  const std::size_t frame = message.head.size() + message.body.size();
  const std::size_t largest = frame > message.tail.size() ? frame : message.tail.size();
  if (largest > limits.max_message_bytes) {
    throw network_error("message of " + std::to_string(largest) + " bytes is over the limit of " +
                            std::to_string(limits.max_message_bytes),
                        false);
  }
}

}  // namespace paracel::net
