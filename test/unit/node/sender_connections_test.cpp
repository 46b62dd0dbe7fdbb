// SPDX-License-Identifier: BSD-3-Clause
#include "server/request/sender_connections.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace paracel::srv {
namespace {

net::peer peer_of(char name) {
  net::peer p;
  p.size = 1;
  p.id[0] = static_cast<std::byte>(name);
  return p;
}

net::request_header of(std::uint64_t client, std::uint32_t rank, bool first) {
  net::request_header h;
  h.client = client;
  h.rank = rank;
  h.flags = net::flag_stream;
  if (first) h.flags |= net::flag_first;
  return h;
}

TEST(Streams, WhatIsOfNoStreamIsTaken) {
  sender_connections s;
  EXPECT_TRUE(s.accepts({}, peer_of('a')));
  EXPECT_TRUE(s.accepts({}, peer_of('b')));
}

TEST(Streams, ANewConnectionMustBeginTheStream) {
  sender_connections s;
  EXPECT_FALSE(s.accepts(of(1, 0, false), peer_of('a'))) << "its first request may be lost";
  EXPECT_TRUE(s.accepts(of(1, 0, true), peer_of('a')));
  EXPECT_TRUE(s.accepts(of(1, 0, false), peer_of('a')));
  EXPECT_FALSE(s.accepts(of(1, 0, false), peer_of('b')));
  EXPECT_TRUE(s.accepts(of(1, 0, true), peer_of('b')));
  EXPECT_TRUE(s.accepts(of(1, 0, false), peer_of('b')));
}

TEST(Streams, WhatComesLateOverTheOldConnectionIsRefused) {
  sender_connections s;
  EXPECT_TRUE(s.accepts(of(1, 0, true), peer_of('a')));
  EXPECT_TRUE(s.accepts(of(1, 0, true), peer_of('b')));
  EXPECT_FALSE(s.accepts(of(1, 0, false), peer_of('a')));
  EXPECT_TRUE(s.accepts(of(1, 0, false), peer_of('b')));
}

TEST(Streams, SendersDoNotDisturbEachOther) {
  sender_connections s;
  EXPECT_TRUE(s.accepts(of(1, 0, true), peer_of('a')));
  EXPECT_TRUE(s.accepts(of(1, 1, true), peer_of('b')));
  EXPECT_TRUE(s.accepts(of(2, 0, true), peer_of('c')));
  EXPECT_TRUE(s.accepts(of(1, 0, false), peer_of('a')));
  EXPECT_TRUE(s.accepts(of(1, 1, false), peer_of('b')));
  EXPECT_TRUE(s.accepts(of(2, 0, false), peer_of('c')));
}

TEST(Streams, WhatTheOwnerKeepsOfASenderSurvivesItsConnectionsUntilItIsTheLeastRecent) {
  sender_table<int> s;
  for (const std::uint64_t client : {1, 2, 3}) {
    auto* const e = s.accept(of(client, 0, true), peer_of('a'));
    ASSERT_NE(e, nullptr);
    e->state = static_cast<int>(client);
  }
  auto* const again = s.accept(of(1, 0, true), peer_of('b'));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->state, 1);
  EXPECT_EQ(again->from, peer_of('b'));
  EXPECT_EQ(s.accept(of(1, 0, false), peer_of('a')), nullptr);
  s.mark_recent({2, 0}, *s.find({2, 0}));
  std::vector<int> dropped;
  while (s.size() != 0) s.drop_oldest([&](const auto& e) { dropped.push_back(e.state); });
  EXPECT_EQ(dropped, (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(s.find({1, 0}), nullptr);
  EXPECT_EQ(s.accept(of(2, 0, false), peer_of('a')), nullptr) << "it starts again";
}

}  // namespace
}  // namespace paracel::srv
