// SPDX-License-Identifier: BSD-3-Clause
//
// What a port promises, checked on every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <paracel/error.hpp>

#include "net/frame_parts.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::answering;
using test::at_most;
using test::bound;
using test::echo;
using test::filled_buffer;
using test::frame_text;
using test::inproc_setting;
using test::ipc_setting;
using test::is_filled_buffer;
using test::saying;
using test::tcp_setting;

template <typename Setting>
class Transport : public testing::Test {};

using transports =
    testing::Types<inproc_setting, ipc_setting, tcp_setting, test::encrypted_setting, test::unix_setting>;
TYPED_TEST_SUITE(Transport, transports, test::setting_names);

TYPED_TEST(Transport, ARequestGetsItsReply) {
  TypeParam s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  auto client = s.net.open();
  const int channel = client->connect(address);
  client->send(channel, {.head = bytes_of("head "), .body = bytes_of("and body")});

  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(in.channel, -1);
  EXPECT_GT(in.from.size, 0);
  EXPECT_EQ(frame_text(in), "head and body");
  EXPECT_FALSE(in.tail);
  server->reply(in.from, saying("answer"));

  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(in.channel, channel);
  EXPECT_EQ(frame_text(in), "answer");
}

TYPED_TEST(Transport, AnEmptyMessageArrivesEmpty) {
  TypeParam s;
  auto server = s.net.open();
  auto client = s.net.open();
  client->send(client->connect(server->bind(s.wildcard())), {});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_TRUE(in.frame.empty());
  EXPECT_FALSE(in.tail);
}

TYPED_TEST(Transport, ATailTravelsBesideTheFrame) {
  TypeParam s;
  const answering server(bound(s.net, s.named("tail")), echo);
  auto client = s.net.open();
  const int channel = client->connect(s.named("tail"));
  for (const std::size_t size : {1UL, 33UL, 8192UL, 1UL << 20, 5UL << 20}) {
    client->send(channel, {.head = bytes_of("h"), .tail = filled_buffer(size, 7)});
    incoming in;
    ASSERT_TRUE(client->receive(in, at_most)) << size;
    EXPECT_EQ(frame_text(in), "h");
    EXPECT_TRUE(is_filled_buffer(in.tail, size, 7)) << size;
    // Between processes the receiver has its own copy.
    EXPECT_TRUE(in.tail.unique() || (std::is_same_v<TypeParam, inproc_setting>));
  }
}

TYPED_TEST(Transport, FramesOfAnySizeAroundThatOfAPartArriveAsTheyWere) {
  TypeParam s;
  auto port = s.net.open();
  const auto address = port->bind(s.wildcard());
  const answering server(std::move(port), echo);
  auto client = s.net.open();
  const int channel = client->connect(address);
  for (const std::size_t head : {std::size_t{0}, part_bytes - 1, part_bytes, part_bytes + 1, 2 * part_bytes}) {
    for (const std::size_t tail : {std::size_t{0}, std::size_t{1}, part_bytes, part_bytes + 1, 12 * part_bytes}) {
      const auto bytes = filled_buffer(head, 3);
      const auto half = head / 2;
      client->send(channel, {.head = bytes.bytes().first(half),
                             .body = bytes.bytes().subspan(half),
                             .tail = tail == 0 ? shared_buffer{} : filled_buffer(tail, 7)});
      incoming in;
      ASSERT_TRUE(client->receive(in, at_most)) << head << " and " << tail;
      EXPECT_TRUE(std::ranges::equal(in.frame, bytes.bytes())) << head << " and " << tail;
      EXPECT_EQ(in.tail.size(), tail) << head;
      EXPECT_TRUE(is_filled_buffer(in.tail, tail, 7)) << head << " and " << tail;
    }
  }
}

TYPED_TEST(Transport, AKeptTailOutlivesThePortThatReceivedIt) {
  TypeParam s;
  shared_buffer kept;
  {
    auto server = s.net.open();
    auto client = s.net.open();
    client->send(client->connect(server->bind(s.wildcard())),
                 {.head = bytes_of("h"), .tail = filled_buffer(100000, 3)});
    incoming in;
    ASSERT_TRUE(server->receive(in, at_most));
    kept = in.tail;
  }
  EXPECT_TRUE(is_filled_buffer(kept, 100000, 3));
}

TYPED_TEST(Transport, AMessageWithoutATailClearsTheLastOne) {
  TypeParam s;
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.wildcard()));
  client->send(channel, {.head = bytes_of("1"), .tail = filled_buffer(10, 0)});
  client->send(channel, saying("2"));
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_TRUE(in.tail);
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_FALSE(in.tail);
}

TYPED_TEST(Transport, RequestsOfOneChannelStayInOrder) {
  TypeParam s;
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.wildcard()));
  for (int i = 0; i < 20000; ++i) client->send(channel, saying(std::to_string(i)));
  incoming in;
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(server->receive(in, at_most)) << i;
    ASSERT_EQ(frame_text(in), std::to_string(i));
  }
}

TYPED_TEST(Transport, ThousandsOfRequestsInFlightAreAllAnswered) {
  // More than any high-water mark of the sockets: none of them may drop a message.
  TypeParam s;
  const answering server(bound(s.net, s.named("many")), echo);
  auto client = s.net.open();
  const int channel = client->connect(s.named("many"));
  constexpr int count = 50000;
  for (int i = 0; i < count; ++i) client->send(channel, saying(std::to_string(i)));
  incoming in;
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(client->receive(in, at_most)) << i;
    ASSERT_EQ(frame_text(in), std::to_string(i));
  }
}

TYPED_TEST(Transport, RepliesMayComeInAnyOrder) {
  TypeParam s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  auto a = s.net.open();
  auto b = s.net.open();
  const int of_a = a->connect(address);
  const int of_b = b->connect(address);
  for (const char* word : {"a1", "a2", "a3"}) a->send(of_a, saying(word));
  for (const char* word : {"b1", "b2", "b3"}) b->send(of_b, saying(word));
  std::map<std::string, peer> waiting;
  incoming in;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(server->receive(in, at_most));
    waiting[frame_text(in)] = in.from;
  }
  for (const char* word : {"b3", "a2", "b1", "a3", "a1", "b2"}) server->reply(waiting.at(word), saying(word));
  for (const char* word : {"a2", "a3", "a1"}) {
    ASSERT_TRUE(a->receive(in, at_most));
    EXPECT_EQ(frame_text(in), word);
  }
  for (const char* word : {"b3", "b1", "b2"}) {
    ASSERT_TRUE(b->receive(in, at_most));
    EXPECT_EQ(frame_text(in), word);
  }
}

TYPED_TEST(Transport, ABatchIsWhatHasArrivedInOrderAndItsFramesLastUntilTheNext) {
  TypeParam s;
  const auto server = s.net.open();
  const auto client = s.net.open();
  const auto channel = client->connect(server->bind(s.wildcard()));
  constexpr std::size_t requests = 500;
  for (std::size_t i = 0; i < requests; ++i) {
    outgoing m = saying("");
    const auto number = std::to_string(i);
    m.head = bytes_of(number);
    if (i % 7 == 0) m.tail = filled_buffer(1000 + i, 3);
    client->send(channel, m);
  }
  std::array<incoming, 40> in;
  EXPECT_EQ(server->receive_batch({}, milliseconds(0)), 0U);
  std::size_t next = 0;
  std::size_t largest = 0;
  while (next < requests) {
    // Room for a few, for many, and for more than a transport returns at once.
    const std::size_t room = next % 3 == 0 ? 3 : next % 3 == 1 ? 16 : in.size();
    const auto n = server->receive_batch(std::span(in).first(room), at_most);
    ASSERT_GT(n, 0U);
    ASSERT_LE(n, room);
    largest = std::max(largest, n);
    for (std::size_t k = 0; k < n; ++k, ++next) {
      ASSERT_EQ(frame_text(in[k]), std::to_string(next));
      if (next % 7 == 0) {
        EXPECT_TRUE(is_filled_buffer(in[k].tail, 1000 + next, 3));
      } else {
        EXPECT_EQ(in[k].tail.size(), 0U);
      }
      server->reply(in[k].from, saying(frame_text(in[k])));  // its frame is still valid
    }
  }
  EXPECT_GT(largest, 1U) << "nothing was ever taken together";
  EXPECT_EQ(server->receive_batch(in, milliseconds(0)), 0U);
  next = 0;
  while (next < requests) {
    const auto n = client->receive_batch(in, at_most);
    ASSERT_GT(n, 0U);
    for (std::size_t k = 0; k < n; ++k, ++next) {
      ASSERT_EQ(in[k].channel, channel);
      ASSERT_EQ(frame_text(in[k]), std::to_string(next));
    }
  }
  EXPECT_EQ(client->receive_batch(in, milliseconds(0)), 0U);
}

TYPED_TEST(Transport, ManyClientsEachGetTheirOwnReplies) {
  TypeParam s;
  const answering server(bound(s.net, s.named("hub")), echo);
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&s, &right, c] {
      auto p = s.net.open();
      const int channel = p->connect(s.named("hub"));
      incoming in;
      for (int i = 0; i < 500; ++i) {
        const std::string word = std::to_string(c) + ":" + std::to_string(i);
        p->send(channel, saying(word));
        if (p->receive(in, at_most) && frame_text(in) == word) ++right;
      }
    });
  }
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(right, 8 * 500);
}

TYPED_TEST(Transport, AClientOfManyServersHearsThemAll) {
  TypeParam s;
  constexpr int servers = 9;
  std::vector<std::unique_ptr<answering>> all;
  auto client = s.net.open();
  for (int i = 0; i < servers; ++i) {
    auto p = s.net.open();
    const std::string address = p->bind(s.wildcard());
    all.push_back(std::make_unique<answering>(std::move(p), [i](port& self, incoming& in) {
      self.reply(in.from, saying(frame_text(in) + "@" + std::to_string(i)));
    }));
    EXPECT_EQ(client->connect(address), i);
  }
  incoming in;
  for (int round = 0; round < 200; ++round) {
    // All at once, some of them, one: with one or several sources a port waits in different ways.
    const int asked = round % 3 == 0 ? servers : round % 3 == 1 ? 3 : 1;
    std::set<int> missing;
    for (int i = 0; i < asked; ++i) {
      const int channel = (round + i) % servers;
      client->send(channel, saying("r" + std::to_string(round)));
      missing.insert(channel);
    }
    for (int i = 0; i < asked; ++i) {
      ASSERT_TRUE(client->receive(in, at_most)) << round;
      EXPECT_EQ(frame_text(in), "r" + std::to_string(round) + "@" + std::to_string(in.channel));
      EXPECT_EQ(missing.erase(in.channel), 1U);
    }
  }
  EXPECT_FALSE(client->receive(in, milliseconds(0)));
}

TYPED_TEST(Transport, APortAnswersAndAsksAtTheSameTime) {
  // b is between a and c, like a server that forwards its updates.
  TypeParam s;
  const answering c(bound(s.net, s.named("c")),
                    [](port& self, incoming& in) { self.reply(in.from, saying("c(" + frame_text(in) + ")")); });
  auto middle = s.net.open();
  middle->bind(s.named("b"));
  const int to_c = middle->connect(s.named("c"));
  peer asker;
  const answering b(std::move(middle), [&asker, to_c](port& self, incoming& in) {
    if (in.channel < 0) {
      asker = in.from;
      self.send(to_c, saying("b(" + frame_text(in) + ")"));
    } else {
      self.reply(asker, saying(frame_text(in)));
    }
  });
  auto a = s.net.open();
  const int to_b = a->connect(s.named("b"));
  incoming in;
  for (int i = 0; i < 300; ++i) {
    a->send(to_b, saying(std::to_string(i)));
    ASSERT_TRUE(a->receive(in, at_most)) << i;
    EXPECT_EQ(frame_text(in), "c(b(" + std::to_string(i) + "))");
  }
}

TYPED_TEST(Transport, OnePortAnswersAtSeveralAddresses) {
  TypeParam s;
  auto server = s.net.open();
  const std::string first = server->bind(s.wildcard());
  const std::string second = server->bind(s.wildcard());
  EXPECT_NE(first, second);
  auto client = s.net.open();
  incoming in;
  for (const std::string& address : {first, second}) {
    client->send(client->connect(address), saying(address));
    ASSERT_TRUE(server->receive(in, at_most));
    EXPECT_EQ(frame_text(in), address);
  }
}

TYPED_TEST(Transport, RequestsWaitForAServerThatBindsLater) {
  TypeParam s;
  auto client = s.net.open();
  const int channel = client->connect(s.named("late"));
  client->send(channel, saying("first"));
  client->send(channel, saying("second"));
  incoming in;
  EXPECT_FALSE(client->receive(in, milliseconds(30)));
  auto server = s.net.open();
  server->bind(s.named("late"));
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "first");
  server->reply(in.from, saying("1"));
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "second");
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "1");
}

TYPED_TEST(Transport, AnAddressThatCannotBeBoundIsNamed) {
  TypeParam s;
  auto server = s.net.open();
  const std::string bad = s.taken(server->bind(s.wildcard()));
  auto other = s.net.open();
  try {
    other->bind(bad);
    FAIL() << "bound " << bad << " twice";
  } catch (const network_error& e) {
    EXPECT_NE(std::string(e.what()).find(bad), std::string::npos) << e.what();
    EXPECT_FALSE(e.may_have_been_applied());
  }
}

TYPED_TEST(Transport, AnAddressIsFreeAgainWhenItsPortIsGone) {
  TypeParam s;
  auto client = s.net.open();
  const int channel = client->connect(s.named("phoenix"));
  incoming in;
  for (int life = 0; life < 3; ++life) {
    auto server = s.net.open();
    server->bind(s.named("phoenix"));
    client->send(channel, saying("life " + std::to_string(life)));
    ASSERT_TRUE(server->receive(in, at_most));
    EXPECT_EQ(frame_text(in), "life " + std::to_string(life));
    server->reply(in.from, saying("ok"));
    ASSERT_TRUE(client->receive(in, at_most));
    // ZeroMQ notices the end of a connection slightly late; a request sent in between is lost with it.
    server.reset();
    EXPECT_FALSE(client->receive(in, milliseconds(50)));
  }
}

TYPED_TEST(Transport, AReplyToAPeerThatHasGoneIsIgnored) {
  TypeParam s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  auto client = s.net.open();
  client->send(client->connect(address), saying("bye"));
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  const peer gone = in.from;
  client.reset();
  std::this_thread::sleep_for(milliseconds(50));
  for (int i = 0; i < 3; ++i)
    EXPECT_NO_THROW(server->reply(gone, {.head = bytes_of("late"), .tail = filled_buffer(100000, 1)}));
  // The port still works for others.
  auto other = s.net.open();
  other->send(other->connect(address), saying("hello"));
  ASSERT_TRUE(server->receive(in, at_most));
  server->reply(in.from, saying("there"));
  ASSERT_TRUE(other->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "there");
}

TYPED_TEST(Transport, AReplyToNobodyKnownIsIgnored) {
  TypeParam s;
  auto server = s.net.open();
  server->bind(s.wildcard());
  peer nobody;
  EXPECT_NO_THROW(server->reply(nobody, saying("?")));
  nobody.size = 5;
  nobody.id[4] = std::byte{77};
  EXPECT_NO_THROW(server->reply(nobody, saying("?")));
  nobody.size = peer::capacity;
  EXPECT_NO_THROW(server->reply(nobody, saying("?")));
}

TYPED_TEST(Transport, AMessageOverTheLimitIsRefusedBeforeItIsSent) {
  TypeParam s({.max_message_bytes = 1000});
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.wildcard()));
  const std::string big(600, 'x');
  try {
    client->send(channel, {.head = bytes_of(big), .body = bytes_of(big)});
    FAIL();
  } catch (const network_error& e) {
    EXPECT_STREQ(e.what(), "message of 1200 bytes is over the limit of 1000");
    EXPECT_FALSE(e.may_have_been_applied());
  }
  EXPECT_THROW(client->send(channel, {.head = bytes_of("h"), .tail = filled_buffer(1001, 0)}), network_error);
  // The limit itself passes, in frame and tail, and what was refused has left nothing behind.
  const std::string just(1000, 'y');
  client->send(channel, {.head = bytes_of(just), .tail = filled_buffer(1000, 5)});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(frame_text(in), just);
  EXPECT_TRUE(is_filled_buffer(in.tail, 1000, 5));
  EXPECT_THROW(server->reply(in.from, {.head = bytes_of(big), .body = bytes_of(big)}), network_error);
  server->reply(in.from, saying("small"));
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "small");
}

TYPED_TEST(Transport, ReceiveReturnsWhenItsTimeIsOver) {
  TypeParam s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  auto client = s.net.open();
  const int channel = client->connect(address);
  const int second = client->connect(address);
  incoming in;
  const auto timed = [&in](port& p, milliseconds timeout) {
    const auto begin = steady_clock::now();
    EXPECT_FALSE(p.receive(in, timeout));
    return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
  };
  EXPECT_LT(timed(*server, milliseconds(0)), 500);
  EXPECT_GE(timed(*server, milliseconds(60)), 59);
  EXPECT_GE(timed(*client, milliseconds(60)), 59);  // no request was sent, so no reply can arrive
  client->send(channel, saying("x"));
  EXPECT_GE(timed(*client, milliseconds(60)), 59);  // one channel
  client->send(second, saying("x"));
  EXPECT_GE(timed(*client, milliseconds(60)), 59);  // two channels
}

TYPED_TEST(Transport, AWaitOfAnyLengthIsUnderstood) {
  TypeParam s;
  const answering server(bound(s.net, s.named("long")), echo);
  auto client = s.net.open();
  const int channel = client->connect(s.named("long"));
  incoming in;
  client->send(channel, saying("x"));
  EXPECT_TRUE(client->receive(in, milliseconds::max()));
  EXPECT_FALSE(client->receive(in, milliseconds::min()));
}

TYPED_TEST(Transport, ADisconnectedChannelIsNotUsedAgain) {
  TypeParam s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  auto client = s.net.open();
  const int first = client->connect(address);
  const int second = client->connect(address);
  client->send(first, saying("one"));
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  const peer asker = in.from;
  client->disconnect(first);
  client->disconnect(first);
  server->reply(asker, saying("too late"));
  EXPECT_FALSE(client->receive(in, milliseconds(30)));
  EXPECT_THROW(client->send(first, saying("again")), network_error);
  EXPECT_THROW(client->send(99, saying("nowhere")), network_error);
  EXPECT_THROW(client->send(-1, saying("nowhere")), network_error);
  client->send(second, saying("two"));
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "two");
  EXPECT_NE(client->connect(address), second);
}

TYPED_TEST(Transport, APortBelongsToTheThreadThatUsesItFirst) {
  TypeParam s;
  auto opened_here = s.net.open();
  std::string address;
  std::thread([&] { address = opened_here->bind(s.wildcard()); }).join();
  std::thread client([&] {
    auto p = s.net.open();
    p->send(p->connect(address), saying("x"));
    incoming in;
    EXPECT_TRUE(p->receive(in, at_most));
  });
  const answering server(std::move(opened_here), echo);
  client.join();
}

TYPED_TEST(Transport, PortsAndTransportMayGoInAnyOrder) {
  auto s = std::make_unique<TypeParam>();
  auto server = s->net.open();
  auto client = s->net.open();
  const int channel = client->connect(server->bind(s->wildcard()));
  client->send(channel, {.head = bytes_of("never read"), .tail = filled_buffer(100000, 1)});
  auto* transport_gone_first = s.release();
  std::thread last([transport_gone_first] { delete transport_gone_first; });
  server.reset();
  client->send(channel, saying("to nobody"));
  client.reset();
  last.join();
}

}  // namespace
}  // namespace paracel::net
