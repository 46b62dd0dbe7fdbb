// SPDX-License-Identifier: BSD-3-Clause
//
// What the transport within a process does beyond the promises that transport_test.cpp checks.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

#include "net/inproc_transport.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using std::chrono::milliseconds;
using test::at_most;
using test::filled_buffer;
using test::saying;

TEST(InprocTransport, ATailIsHandedOverWithoutACopy) {
  inproc_transport net;
  auto server = net.open();
  auto client = net.open();
  const int channel = client->connect(server->bind("inproc://x"));
  const shared_buffer value = filled_buffer(200000, 9);
  client->send(channel, {.head = bytes_of("h"), .tail = value});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(in.tail.data(), value.data());
  EXPECT_FALSE(in.tail.unique());  // so a server that updates in place copies first
  server->reply(in.from, {.head = bytes_of("r"), .tail = in.tail});
  in = {};
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(in.tail.data(), value.data());
}

TEST(InprocTransport, TwoTransportsDoNotMeet) {
  inproc_transport one;
  inproc_transport two;
  auto server = one.open();
  server->bind("inproc://same");
  auto stranger = two.open();
  stranger->send(stranger->connect("inproc://same"), saying("?"));
  incoming in;
  EXPECT_FALSE(server->receive(in, milliseconds(20)));
  auto friendly = one.open();
  friendly->send(friendly->connect("inproc://same"), saying("!"));
  EXPECT_TRUE(server->receive(in, at_most));
}

TEST(InprocTransport, WildcardsNeverCollideWithNames) {
  inproc_transport net;
  auto a = net.open();
  a->bind("inproc://1");
  std::set<std::string> addresses{"inproc://1"};
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(addresses.insert(a->bind("inproc://*")).second);
}

}  // namespace
}  // namespace paracel::net
