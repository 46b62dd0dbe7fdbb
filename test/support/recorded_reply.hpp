// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::test {

/// A reply as a port would have sent it, decoded. The body of `view` is in `frame`.
struct recorded_reply {
  explicit recorded_reply(const net::outgoing& message) : frame(message.head.begin(), message.head.end()) {
    frame.insert(frame.end(), message.body.begin(), message.body.end());
    EXPECT_EQ(net::decode(frame, message.tail.size(), view), nullptr);
    value = message.tail ? message.tail.bytes() : view.body;
  }
  recorded_reply(const recorded_reply&) = delete;
  recorded_reply& operator=(const recorded_reply&) = delete;

  std::vector<std::byte> frame;
  net::reply_view view;
  std::span<const std::byte> value;  ///< the second frame if there is one, otherwise the body
};

}  // namespace paracel::test
