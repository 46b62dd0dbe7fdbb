// SPDX-License-Identifier: BSD-3-Clause
//
// What a port promises, checked on both transports; then what only ZeroMQ's sockets can do to it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "net/inproc_transport.hpp"
#include "net/send_queue_meter.hpp"
#include "net/zmq_transport.hpp"

namespace paracel::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
constexpr milliseconds at_most(10000);  // nothing here takes this long unless it fails

std::span<const std::byte> bytes(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
std::string text(std::span<const std::byte> b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
std::string text(const incoming& in) { return text(in.frame); }
outgoing saying(std::string_view s) { return {.head = bytes(s)}; }

shared_buffer filled(std::size_t size, unsigned seed) {
  shared_buffer b = shared_buffer::allocate(size);
  for (std::size_t i = 0; i < size; ++i) b.mutable_data()[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
  return b;
}
bool is_filled(const shared_buffer& b, std::size_t size, unsigned seed) {
  if (b.size() != size) return false;
  for (std::size_t i = 0; i < size; ++i) {
    if (b.data()[i] != static_cast<std::byte>((i * 31 + seed) & 0xff)) return false;
  }
  return true;
}

/// Where addresses come from: a folder for ipc, a free port for tcp, names inside the process.
struct inproc_setting {
  explicit inproc_setting(transport_limits limits = {}) : net(limits) {}
  std::string wildcard() { return "inproc://*"; }
  std::string named(const std::string& name) { return "inproc://" + name; }
  std::string taken(const std::string& real) { return real; }
  inproc_transport net;
};

struct ipc_setting {
  explicit ipc_setting(transport_limits limits = {}) : net(limits) {
    std::string pattern = "/tmp/prc-test-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~ipc_setting() { std::filesystem::remove_all(folder); }
  std::string wildcard() { return named("w" + std::to_string(++count)); }
  std::string named(const std::string& name) { return "ipc://" + folder + "/" + name; }
  std::string taken(const std::string&) { return "ipc://" + folder + "/no/such/folder"; }
  std::string folder;
  int count = 0;
  zmq_transport net;
};

struct tcp_setting : ipc_setting {
  using ipc_setting::ipc_setting;
  std::string wildcard() { return "tcp://127.0.0.1:*"; }
  std::string taken(const std::string& real) { return real; }
};

template <typename Setting>
class Transport : public testing::Test {};

struct setting_names {
  template <typename Setting>
  static std::string GetName(int) {
    if (std::is_same_v<Setting, inproc_setting>) return "inproc";
    return std::is_same_v<Setting, ipc_setting> ? "zmq_ipc" : "zmq_tcp";
  }
};
using settings = testing::Types<inproc_setting, ipc_setting, tcp_setting>;
TYPED_TEST_SUITE(Transport, settings, setting_names);

/// A thread that answers every request with `f(request)` until it is destroyed.
class answering {
 public:
  answering(std::unique_ptr<port> p, std::function<void(port&, incoming&)> f)
      : thread_([this, p = std::move(p), f = std::move(f)]() mutable {
          incoming in;
          while (!stop_) {
            if (p->receive(in, milliseconds(20))) f(*p, in);
          }
        }) {}
  ~answering() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void echo(port& p, incoming& in) { p.reply(in.from, {.head = in.frame, .tail = in.tail}); }

TYPED_TEST(Transport, ARequestGetsItsReply) {
  TypeParam s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  auto client = s.net.open();
  const int channel = client->connect(address);
  client->send(channel, {.head = bytes("head "), .body = bytes("and body")});

  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(in.channel, -1);
  EXPECT_GT(in.from.size, 0);
  EXPECT_EQ(text(in), "head and body");
  EXPECT_FALSE(in.tail);
  server->reply(in.from, saying("answer"));

  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(in.channel, channel);
  EXPECT_EQ(text(in), "answer");
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
  const answering server(
      [&s] {
        auto p = s.net.open();
        p->bind(s.named("tail"));
        return p;
      }(),
      echo);
  auto client = s.net.open();
  const int channel = client->connect(s.named("tail"));
  for (const std::size_t size : {1UL, 33UL, 8192UL, 1UL << 20, 5UL << 20}) {
    client->send(channel, {.head = bytes("h"), .tail = filled(size, 7)});
    incoming in;
    ASSERT_TRUE(client->receive(in, at_most)) << size;
    EXPECT_EQ(text(in), "h");
    EXPECT_TRUE(is_filled(in.tail, size, 7)) << size;
    // Between processes the receiver has bytes of his own.
    EXPECT_TRUE(in.tail.unique() || (std::is_same_v<TypeParam, inproc_setting>));
  }
}

TYPED_TEST(Transport, AKeptTailOutlivesThePortThatReceivedIt) {
  TypeParam s;
  shared_buffer kept;
  {
    auto server = s.net.open();
    auto client = s.net.open();
    client->send(client->connect(server->bind(s.wildcard())), {.head = bytes("h"), .tail = filled(100000, 3)});
    incoming in;
    ASSERT_TRUE(server->receive(in, at_most));
    kept = in.tail;
  }
  EXPECT_TRUE(is_filled(kept, 100000, 3));
}

TYPED_TEST(Transport, AMessageWithoutATailClearsTheLastOne) {
  TypeParam s;
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.wildcard()));
  client->send(channel, {.head = bytes("1"), .tail = filled(10, 0)});
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
    ASSERT_EQ(text(in), std::to_string(i));
  }
}

TYPED_TEST(Transport, ThousandsOfRequestsInFlightAreAllAnswered) {
  // More than any high-water mark of the sockets: none of them may drop a message.
  TypeParam s;
  const answering server(
      [&s] {
        auto p = s.net.open();
        p->bind(s.named("many"));
        return p;
      }(),
      echo);
  auto client = s.net.open();
  const int channel = client->connect(s.named("many"));
  constexpr int count = 50000;
  for (int i = 0; i < count; ++i) client->send(channel, saying(std::to_string(i)));
  incoming in;
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(client->receive(in, at_most)) << i;
    ASSERT_EQ(text(in), std::to_string(i));
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
    waiting[text(in)] = in.from;
  }
  for (const char* word : {"b3", "a2", "b1", "a3", "a1", "b2"}) server->reply(waiting.at(word), saying(word));
  for (const char* word : {"a2", "a3", "a1"}) {
    ASSERT_TRUE(a->receive(in, at_most));
    EXPECT_EQ(text(in), word);
  }
  for (const char* word : {"b3", "b1", "b2"}) {
    ASSERT_TRUE(b->receive(in, at_most));
    EXPECT_EQ(text(in), word);
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
    m.head = bytes(number);
    if (i % 7 == 0) m.tail = filled(1000 + i, 3);
    client->send(channel, m);
  }
  std::array<incoming, 40> in;
  EXPECT_EQ(server->receive_batch({}, milliseconds(0)), 0U);
  std::size_t next = 0;
  std::size_t largest = 0;
  while (next < requests) {
    // Room for a few, for many, and for more than a transport gives at once.
    const std::size_t room = next % 3 == 0 ? 3 : next % 3 == 1 ? 16 : in.size();
    const auto n = server->receive_batch(std::span(in).first(room), at_most);
    ASSERT_GT(n, 0U);
    ASSERT_LE(n, room);
    largest = std::max(largest, n);
    for (std::size_t k = 0; k < n; ++k, ++next) {
      ASSERT_EQ(text(in[k]), std::to_string(next));
      if (next % 7 == 0) {
        EXPECT_TRUE(is_filled(in[k].tail, 1000 + next, 3));
      } else {
        EXPECT_EQ(in[k].tail.size(), 0U);
      }
      server->reply(in[k].from, saying(text(in[k])));  // its frame is still there
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
      ASSERT_EQ(text(in[k]), std::to_string(next));
    }
  }
  EXPECT_EQ(client->receive_batch(in, milliseconds(0)), 0U);
}

TYPED_TEST(Transport, ManyClientsEachGetTheirOwnReplies) {
  TypeParam s;
  const answering server(
      [&s] {
        auto p = s.net.open();
        p->bind(s.named("hub"));
        return p;
      }(),
      echo);
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
        if (p->receive(in, at_most) && text(in) == word) ++right;
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
      self.reply(in.from, saying(text(in) + "@" + std::to_string(i)));
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
      EXPECT_EQ(text(in), "r" + std::to_string(round) + "@" + std::to_string(in.channel));
      EXPECT_EQ(missing.erase(in.channel), 1U);
    }
  }
  EXPECT_FALSE(client->receive(in, milliseconds(0)));
}

TYPED_TEST(Transport, APortAnswersAndAsksAtTheSameTime) {
  // b stands between a and c, as a server does that hands its updates on.
  TypeParam s;
  const answering c(
      [&s] {
        auto p = s.net.open();
        p->bind(s.named("c"));
        return p;
      }(),
      [](port& self, incoming& in) { self.reply(in.from, saying("c(" + text(in) + ")")); });
  auto middle = s.net.open();
  middle->bind(s.named("b"));
  const int to_c = middle->connect(s.named("c"));
  peer asker;
  const answering b(std::move(middle), [&asker, to_c](port& self, incoming& in) {
    if (in.channel < 0) {
      asker = in.from;
      self.send(to_c, saying("b(" + text(in) + ")"));
    } else {
      self.reply(asker, saying(text(in)));
    }
  });
  auto a = s.net.open();
  const int to_b = a->connect(s.named("b"));
  incoming in;
  for (int i = 0; i < 300; ++i) {
    a->send(to_b, saying(std::to_string(i)));
    ASSERT_TRUE(a->receive(in, at_most)) << i;
    EXPECT_EQ(text(in), "c(b(" + std::to_string(i) + "))");
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
    EXPECT_EQ(text(in), address);
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
  EXPECT_EQ(text(in), "first");
  server->reply(in.from, saying("1"));
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(text(in), "second");
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(text(in), "1");
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
    EXPECT_EQ(text(in), "life " + std::to_string(life));
    server->reply(in.from, saying("ok"));
    ASSERT_TRUE(client->receive(in, at_most));
    // ZeroMQ notices that a connection ended a moment after it did; a request in that moment goes down with it.
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
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(server->reply(gone, {.head = bytes("late"), .tail = filled(100000, 1)}));
  // The port still works for others.
  auto other = s.net.open();
  other->send(other->connect(address), saying("hello"));
  ASSERT_TRUE(server->receive(in, at_most));
  server->reply(in.from, saying("there"));
  ASSERT_TRUE(other->receive(in, at_most));
  EXPECT_EQ(text(in), "there");
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
    client->send(channel, {.head = bytes(big), .body = bytes(big)});
    FAIL();
  } catch (const network_error& e) {
    EXPECT_STREQ(e.what(), "message of 1200 bytes is over the limit of 1000");
    EXPECT_FALSE(e.may_have_been_applied());
  }
  EXPECT_THROW(client->send(channel, {.head = bytes("h"), .tail = filled(1001, 0)}), network_error);
  // The limit itself passes, in frame and tail, and what was refused has left nothing behind.
  const std::string just(1000, 'y');
  client->send(channel, {.head = bytes(just), .tail = filled(1000, 5)});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(text(in), just);
  EXPECT_TRUE(is_filled(in.tail, 1000, 5));
  EXPECT_THROW(server->reply(in.from, {.head = bytes(big), .body = bytes(big)}), network_error);
  server->reply(in.from, saying("small"));
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(text(in), "small");
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
  EXPECT_GE(timed(*client, milliseconds(60)), 59);  // nothing was asked: nothing can come
  client->send(channel, saying("x"));
  EXPECT_GE(timed(*client, milliseconds(60)), 59);  // one channel
  client->send(second, saying("x"));
  EXPECT_GE(timed(*client, milliseconds(60)), 59);  // two channels
}

TYPED_TEST(Transport, AWaitOfAnyLengthIsUnderstood) {
  TypeParam s;
  const answering server(
      [&s] {
        auto p = s.net.open();
        p->bind(s.named("long"));
        return p;
      }(),
      echo);
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
  EXPECT_EQ(text(in), "two");
  EXPECT_EQ(client->connect(address), 2);
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
  client->send(channel, {.head = bytes("never read"), .tail = filled(100000, 1)});
  auto* transport_gone_first = s.release();
  std::thread last([transport_gone_first] { delete transport_gone_first; });
  server.reset();
  client->send(channel, saying("to nobody"));
  client.reset();
  last.join();
}

TEST(InprocTransport, ATailIsHandedOverWithoutACopy) {
  inproc_transport net;
  auto server = net.open();
  auto client = net.open();
  const int channel = client->connect(server->bind("inproc://x"));
  const shared_buffer value = filled(200000, 9);
  client->send(channel, {.head = bytes("h"), .tail = value});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(in.tail.data(), value.data());
  EXPECT_FALSE(in.tail.unique());  // so a server that updates in place copies first
  server->reply(in.from, {.head = bytes("r"), .tail = in.tail});
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

TEST(ZmqTransport, AFreePortIsNamedByBind) {
  zmq_transport net;
  auto server = net.open();
  const std::string address = server->bind("tcp://127.0.0.1:*");
  EXPECT_EQ(address.rfind("tcp://127.0.0.1:", 0), 0U);
  EXPECT_GT(std::stoi(address.substr(16)), 0);
}

TEST(ZmqTransport, OtherKindsOfAddressAreRefused) {
  zmq_transport net;
  auto p = net.open();
  for (const char* address : {"inproc://x", "127.0.0.1:80", "", "udp://127.0.0.1:1"}) {
    EXPECT_THROW(p->bind(address), network_error) << address;
    EXPECT_THROW(p->connect(address), network_error) << address;
  }
  for (const char* address : {"tcp://127.0.0.1", "tcp://127.0.0.1:x", "ipc://"}) {
    EXPECT_THROW(p->connect(address), network_error) << address;
  }
  // 107 bytes are the most that the kernel takes as the path of a socket.
  try {
    p->bind("ipc:///tmp/" + std::string(120, 'p'));
    FAIL();
  } catch (const network_error& e) {
    EXPECT_NE(std::string(e.what()).find("File name too long"), std::string::npos) << e.what();
  }
}

/// A socket of its own, as a program of somebody else would have.
class raw_socket {
 public:
  raw_socket(zmq::socket_type type, const std::string& address, int most_received = 0)
      : socket_(context_, type), address_(address) {
    socket_.set(zmq::sockopt::sndhwm, 0);
    socket_.set(zmq::sockopt::rcvhwm, most_received);
    socket_.set(zmq::sockopt::linger, 1000);
    socket_.set(zmq::sockopt::rcvtimeo, 10000);
  }
  void name(const std::string& id) { socket_.set(zmq::sockopt::routing_id, id); }
  void connect() { socket_.connect(address_); }
  void send(const std::vector<std::string>& parts) { send_parts(socket_, parts); }
  std::vector<std::string> receive() {
    std::vector<std::string> parts;
    zmq::message_t part;
    do {
      if (!socket_.recv(part)) return {};
      parts.push_back(part.to_string());
    } while (part.more());
    return parts;
  }
  static void send_parts(zmq::socket_t& socket, const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto flags = i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
      ASSERT_TRUE(socket.send(zmq::buffer(parts[i]), flags));
    }
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::string address_;
};

TEST(ZmqTransport, APlainReqSocketIsAClient) {
  zmq_transport net;
  auto p = net.open();
  const std::string address = p->bind("tcp://127.0.0.1:*");
  const answering server(std::move(p), echo);
  raw_socket req(zmq::socket_type::req, address);
  req.connect();
  for (const std::string word : {"one", "", "three"}) {
    req.send({word});
    EXPECT_EQ(req.receive(), std::vector<std::string>{word});
  }
  const std::vector<std::string> two{"frame", std::string(100000, 't')};
  req.send(two);
  EXPECT_EQ(req.receive(), two);
}

/// What a server's port says of a client that asks and does not read, and what it says after it has read.
class UnreadReplies : public ::testing::TestWithParam<std::size_t> {};

TEST_P(UnreadReplies, AreMeasuredUntilTheyAreReadAndForgottenWithTheConnection) {
  const std::size_t reply_bytes = GetParam();
  constexpr std::size_t most_read_ahead = 8;  // by ZeroMQ in the client, beside what the kernel holds
  constexpr std::size_t asked_bytes = std::size_t{48} << 20;
  const std::size_t requests = asked_bytes / reply_bytes;
  ipc_setting s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  const shared_buffer large = reply_bytes > 65536 ? filled(reply_bytes, 1) : shared_buffer{};
  const std::string small(reply_bytes, 'r');
  std::uint64_t unread = 0;
  const auto serve = [&](std::size_t n) {
    incoming in;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(server->receive(in, at_most));
      unread = in.unread_bytes;
      server->reply(in.from, large ? outgoing{.head = bytes("large"), .tail = large} : saying(small));
    }
  };
  const auto least = [&](std::size_t n) { return n * reply_bytes; };
  const auto most = [&](std::size_t n) { return n * (reply_bytes + 512); };
  {
    raw_socket lazy(zmq::socket_type::dealer, address, most_read_ahead);
    lazy.connect();
    for (std::size_t i = 0; i < requests; ++i) lazy.send({"", "ask"});
    serve(requests);
    EXPECT_LT(unread, most(requests));
    EXPECT_GT(unread, least(requests) - (std::size_t{8} << 20));
    // Another one's account is his own.
    raw_socket other(zmq::socket_type::dealer, address);
    other.connect();
    for (int i = 0; i < 3; ++i) {
      other.send({"", "ask"});
      serve(1);
      EXPECT_EQ(unread, 0U);
      EXPECT_FALSE(other.receive().empty());
    }
    for (std::size_t i = 0; i < requests; ++i) ASSERT_FALSE(lazy.receive().empty());
    lazy.send({"", "ask"});
    serve(1);
    EXPECT_LT(unread, send_queue_meter::noticed_bytes + most(1));
    EXPECT_FALSE(lazy.receive().empty());
    for (std::size_t i = 0; i < requests; ++i) lazy.send({"", "ask"});
    serve(requests);
  }
  // It has gone; its memory comes back, and with it the tails that were on their way.
  if (!large) return;
  const auto end = steady_clock::now() + at_most;
  shared_buffer& held = const_cast<shared_buffer&>(large);
  while (!held.unique() && steady_clock::now() < end) {
    incoming in;
    server->receive(in, milliseconds(10));
  }
  EXPECT_TRUE(held.unique());
}

INSTANTIATE_TEST_SUITE_P(ZmqTransport, UnreadReplies, ::testing::Values(2000, 40000, 200000));

TEST(ZmqTransport, AClientMayNameItself) {
  zmq_transport net;
  auto p = net.open();
  const std::string address = p->bind("tcp://127.0.0.1:*");
  const answering server(std::move(p), echo);
  raw_socket req(zmq::socket_type::req, address);
  req.name(std::string(peer::capacity, 'n'));
  req.connect();
  req.send({"word"});
  EXPECT_EQ(req.receive(), std::vector<std::string>{"word"});
}

TEST(ZmqTransport, MalformedEnvelopesAreDroppedAndTheNextRequestIsServed) {
  zmq_transport net;
  auto server = net.open();
  const std::string address = server->bind("tcp://127.0.0.1:*");
  raw_socket bad(zmq::socket_type::dealer, address);
  bad.connect();
  bad.send({"no delimiter"});
  bad.send({""});
  bad.send({"x", "delimiter is not empty"});
  bad.send({"", "frame", "tail", "one too many"});
  bad.send({"", "frame", "tail", "1", "2", "3", "4"});
  bad.send({"", "good"});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(text(in), "good");
  EXPECT_FALSE(in.tail);
  EXPECT_FALSE(server->receive(in, milliseconds(30)));

  raw_socket named(zmq::socket_type::dealer, address);
  named.name(std::string(peer::capacity + 1, 'n'));
  named.connect();
  named.send({"", "a name that no peer can hold"});
  bad.send({"", "still good"});
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(text(in), "still good");
  EXPECT_FALSE(server->receive(in, milliseconds(30)));
}

TEST(ZmqTransport, MalformedRepliesAreDropped) {
  zmq::context_t context;
  zmq::socket_t router(context, zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  router.bind("tcp://127.0.0.1:*");
  const std::string address = router.get(zmq::sockopt::last_endpoint);
  {
    zmq_transport net;
    auto client = net.open();
    const int channel = client->connect(address);
    const int other = client->connect(address);
    for (const int sources : {1, 2}) {  // one socket to wait for, then two
      client->send(channel, saying("ask"));
      if (sources == 2) client->send(other, saying("ask"));
      for (int asked = 0; asked < sources; ++asked) {
        zmq::message_t id;
        ASSERT_TRUE(router.recv(id));
        zmq::message_t rest;
        ASSERT_TRUE(router.recv(rest));
        ASSERT_TRUE(router.recv(rest));
        const auto say = [&](std::vector<std::string> parts) {
          parts.insert(parts.begin(), id.to_string());
          raw_socket::send_parts(router, parts);
        };
        say({"junk"});
        say({""});
        say({"", "a", "b", "c"});
        say({"", "answer"});
      }
      incoming in;
      for (int i = 0; i < sources; ++i) {
        ASSERT_TRUE(client->receive(in, at_most));
        EXPECT_EQ(text(in), "answer");
      }
      EXPECT_FALSE(client->receive(in, milliseconds(20)));
    }
  }
}

TEST(ZmqTransport, ARawFrameOverTheLimitEndsThatConnectionOnly) {
  zmq_transport net({.max_message_bytes = 1000});
  auto server = net.open();
  const std::string address = server->bind("tcp://127.0.0.1:*");
  raw_socket hostile(zmq::socket_type::dealer, address);
  hostile.connect();
  hostile.send({"", std::string(5000, 'x')});
  auto client = net.open();
  client->send(client->connect(address), saying("fine"));
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(text(in), "fine");
  EXPECT_FALSE(server->receive(in, milliseconds(30)));
}

TEST(ZmqTransport, AChannelThatWasCutOffSaysSo) {
  zmq_transport small({.max_message_bytes = 1000});
  zmq_transport large;
  auto p = large.open();
  const std::string address = p->bind("tcp://127.0.0.1:*");
  const std::string much(5000, 'x');
  const answering server(std::move(p), [&much](port& self, incoming& in) { self.reply(in.from, saying(much)); });
  auto client = small.open();
  const int channel = client->connect(address);
  client->send(channel, saying("give me too much"));
  incoming in;
  EXPECT_FALSE(client->receive(in, milliseconds(200)));
  try {
    for (int i = 0; i < 100; ++i) client->send(channel, saying("more"));
    FAIL() << "the channel still takes requests";
  } catch (const network_error& e) {
    EXPECT_NE(std::string(e.what()).find("more than 1000 bytes"), std::string::npos) << e.what();
  }
}

TEST(ZmqTransport, TheLastReplyLeavesThoughItsPortIsClosedAtOnce) {
  zmq_transport client_net;
  auto client = client_net.open();
  for (int i = 0; i < 20; ++i) {
    zmq_transport server_net;
    auto server = server_net.open();
    const int channel = client->connect(server->bind("tcp://127.0.0.1:*"));
    client->send(channel, saying("last words?"));
    incoming in;
    ASSERT_TRUE(server->receive(in, at_most));
    server->reply(in.from, saying("shutdown"));
    server.reset();
    ASSERT_TRUE(client->receive(in, at_most)) << i;
    EXPECT_EQ(text(in), "shutdown");
    client->disconnect(channel);
  }
}

TEST(ZmqTransport, ClosingDoesNotWaitForAServerThatNeverCame) {
  const auto begin = steady_clock::now();
  {
    zmq_transport net;
    auto client = net.open();
    client->send(client->connect("ipc:///tmp/prc-test-nobody-is-here"), saying("anyone?"));
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(2));
}

}  // namespace
}  // namespace paracel::net
