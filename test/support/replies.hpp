// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "net/protocol.hpp"
#include "server/request/completion.hpp"

namespace paracel::test {

/// Replies by the number of their request.
class replies_by_sequence final : public srv::reply_sink {
 public:
  struct answer {
    net::reply_header header;
    std::string body;
  };
  void send(const net::peer&, const net::outgoing& m) override {
    std::vector<std::byte> frame(m.head.begin(), m.head.end());
    frame.insert(frame.end(), m.body.begin(), m.body.end());
    net::reply_view reply;
    ASSERT_EQ(net::decode(frame, m.tail.size(), reply), nullptr);
    all[reply.header.sequence] = {reply.header, std::string(net::text_of(reply.body))};
  }
  std::map<std::uint64_t, answer> all;
};

}  // namespace paracel::test
