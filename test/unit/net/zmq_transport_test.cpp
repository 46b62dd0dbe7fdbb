// SPDX-License-Identifier: BSD-3-Clause
//
// What only ZeroMQ's sockets can do to a port: peers that are not ours, malformed messages, replies that stay unread.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "net/frame_parts.hpp"
#include "net/send_queue_meter.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::answering;
using test::at_most;
using test::echo;
using test::filled_buffer;
using test::frame_text;
using test::ipc_setting;
using test::saying;

/// A plain ZeroMQ socket, as in a foreign program.
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
  // The kernel accepts at most 107 bytes as the path of a socket.
  try {
    p->bind("ipc:///tmp/" + std::string(120, 'p'));
    FAIL();
  } catch (const network_error& e) {
    EXPECT_NE(std::string(e.what()).find("File name too long"), std::string::npos) << e.what();
  }
}

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

TEST(ZmqTransport, AForeignClientSendsLargeFramesWholeOverIpcAndInPartsOverTcp) {
  const std::string head(3 << 20, 'h');
  const std::string tail(part_bytes, 't');
  ipc_setting s;
  const answering local(test::bound(s.net, s.named("large")), echo);
  raw_socket whole(zmq::socket_type::req, s.named("large"));
  whole.connect();
  for (const auto& message : {std::vector<std::string>{head}, {head, tail}, {"h", head}, {"h", tail}}) {
    whole.send(message);
    EXPECT_EQ(whole.receive(), message);
  }
  auto p = s.net.open();
  const std::string address = p->bind("tcp://127.0.0.1:*");
  const answering server(std::move(p), echo);
  raw_socket parts(zmq::socket_type::req, address);
  parts.connect();
  std::vector<std::string> cut;
  for (std::size_t at = 0; at < head.size(); at += part_bytes) cut.push_back(head.substr(at, part_bytes));
  cut.push_back(tail);
  parts.send(cut);
  EXPECT_EQ(parts.receive(), cut);
  parts.send({tail, "", "x"});
  EXPECT_EQ(parts.receive(), (std::vector<std::string>{tail, "", "x"}));
  const std::string as_large_as_may_be(most_part_bytes, 'm');
  parts.send({as_large_as_may_be});
  const auto received = parts.receive();  // a part that is not full ends its frame, but the answer is cut
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0] + received[1], as_large_as_may_be);
}

TEST(ZmqTransport, AMessageOfMoreThanTwoFramesIsDroppedHoweverItsPartsAreCut) {
  std::atomic<int> dropped{0};
  zmq_transport net({.max_message_bytes = 2 * part_bytes}, [&dropped](std::string_view why) {
    EXPECT_NE(why.find("more than two frames, or more than 2097024 bytes"), std::string_view::npos) << why;
    ++dropped;
  });
  auto p = net.open();
  const std::string address = p->bind("tcp://127.0.0.1:*");
  const answering server(std::move(p), echo);
  raw_socket client(zmq::socket_type::dealer, address);
  client.connect();
  const std::string full(part_bytes, 'f');
  client.send({"", full, "", full, "", "third"});
  client.send({"", full, full, "too large"});
  client.send({"", full, full});
  EXPECT_EQ(client.receive(), (std::vector<std::string>{"", full, full}));
  EXPECT_EQ(dropped, 2);
}

/// What a server's port reports about a client that sends requests without reading the replies, and after it has read.
class UnreadReplies : public ::testing::TestWithParam<std::size_t> {};

TEST_P(UnreadReplies, AreMeasuredUntilTheyAreReadAndForgottenWithTheConnection) {
  const std::size_t reply_bytes = GetParam();
  constexpr std::size_t most_read_ahead = 8;  // by ZeroMQ in the client, besides the kernel's buffers
  constexpr std::size_t asked_bytes = std::size_t{48} << 20;
  const std::size_t requests = asked_bytes / reply_bytes;
  ipc_setting s;
  auto server = s.net.open();
  const std::string address = server->bind(s.wildcard());
  const shared_buffer large = reply_bytes > 65536 ? filled_buffer(reply_bytes, 1) : shared_buffer{};
  const std::string small(reply_bytes, 'r');
  std::uint64_t unread = 0;
  const auto serve = [&](std::size_t n) {
    incoming in;
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(server->receive(in, at_most));
      unread = in.unread_bytes;
      server->reply(in.from, large ? outgoing{.head = bytes_of("large"), .tail = large} : saying(small));
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
    // Another client has its own account.
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
  // It is gone; its memory is released, and with it the tails in flight.
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

// A port with several sources skips those that it has found empty, but not forever: a caller may only ever poll without
// blocking.
TEST(ZmqTransport, AReceiveThatDoesNotWaitSeesWhatHasArrivedSince) {
  ipc_setting setting;
  auto server = setting.net.open();
  const auto at = server->bind(setting.wildcard());
  auto port = setting.net.open();
  port->bind(setting.wildcard());  // a second source besides the channel
  const int channel = port->connect(at);
  incoming in;
  for (int i = 0; i < 3; ++i) {
    port->send(channel, saying("question"));
    for (int k = 0; k < 3; ++k) EXPECT_FALSE(port->receive(in, milliseconds{0}));
    incoming request;
    ASSERT_TRUE(server->receive(request, at_most));
    echo(*server, request);
    bool arrived = false;
    const auto end = steady_clock::now() + at_most;
    while (!arrived && steady_clock::now() < end) arrived = port->receive(in, milliseconds{0});
    ASSERT_TRUE(arrived);
    EXPECT_EQ(frame_text(in), "question");
  }
}

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
  EXPECT_EQ(frame_text(in), "good");
  EXPECT_FALSE(in.tail);
  EXPECT_FALSE(server->receive(in, milliseconds(30)));

  raw_socket named(zmq::socket_type::dealer, address);
  named.name(std::string(peer::capacity + 1, 'n'));
  named.connect();
  named.send({"", "a name that no peer can hold"});
  bad.send({"", "still good"});
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "still good");
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
        EXPECT_EQ(frame_text(in), "answer");
      }
      EXPECT_FALSE(client->receive(in, milliseconds(20)));
    }
  }
}

TEST(ZmqTransport, RepliesThatNobodyTakesStopTheirSenderAndNoneIsLost) {
  constexpr int many = 500'000;
  zmq::context_t context;
  zmq::socket_t router(context, zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  router.set(zmq::sockopt::router_mandatory, true);  // so that it says when it cannot send
  router.bind("tcp://127.0.0.1:*");
  zmq_transport net;
  const auto client = net.open();
  const int channel = client->connect(router.get(zmq::sockopt::last_endpoint));
  client->send(channel, saying("ask"));
  std::vector<zmq::message_t> request(3);
  for (auto& part : request) ASSERT_TRUE(router.recv(part));
  const auto id = request[0].to_string();
  const std::string reply(400, 'r');
  int sent = 0;
  for (auto last = steady_clock::now(); sent < many && steady_clock::now() - last < milliseconds(1000);) {
    if (!router.send(zmq::buffer(id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      std::this_thread::sleep_for(milliseconds(1));
      continue;
    }
    router.send(zmq::message_t(), zmq::send_flags::sndmore);
    router.send(zmq::buffer(reply), zmq::send_flags::none);
    ++sent;
    last = steady_clock::now();
  }
  EXPECT_GE(sent, 65'536);
  EXPECT_LE(sent, 250'000) << "with what the system holds on the way";
  incoming in;
  int taken = 0;
  for (; taken < sent && client->receive(in, at_most); ++taken) {
    EXPECT_EQ(in.frame.size(), reply.size());
    client->send(channel, saying("ask"));  // as many replies are taken as were asked for
  }
  EXPECT_EQ(taken, sent);
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
  EXPECT_EQ(frame_text(in), "fine");
  EXPECT_FALSE(server->receive(in, milliseconds(30)));
}

TEST(ZmqTransport, AConnectionThatWasCutOffForAReplyTooLargeIsReplacedAndThisIsSaid) {
  // One frame has 1,000 bytes, and all of a message twice as many.
  for (const auto& [bytes, limit] : {std::pair{1500U, std::string("1000")}, std::pair{5000U, std::string("2000")}}) {
    std::mutex mutex;  // it may be said on ZeroMQ's thread
    std::string said;
    zmq_transport small({.max_message_bytes = 1000}, [&](std::string_view why) {
      const std::lock_guard lock(mutex);
      said += why;
    });
    zmq_transport large;
    auto p = large.open();
    const std::string address = p->bind("tcp://127.0.0.1:*");
    const std::string much(bytes, 'x');
    const answering server(std::move(p), [&much](port& self, incoming& in) {
      if (frame_text(in) == "give me too much") self.reply(in.from, saying(much));
      else echo(self, in);
    });
    auto client = small.open();
    const int channel = client->connect(address);
    client->send(channel, saying("give me too much"));
    incoming in;
    EXPECT_FALSE(client->receive(in, milliseconds(200)));
    client->send(channel, saying("less"));
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_EQ(in.channel, channel);
    EXPECT_EQ(frame_text(in), "less");
    const std::lock_guard lock(mutex);
    EXPECT_NE(said.find("had more than " + limit + " bytes"), std::string::npos) << said;
  }
}

TEST(ZmqTransport, ARenewedConnectionTakesThePlaceOfAClosedOne) {
  for (const std::size_t threads : {1, 2}) {
    zmq_transport net;
    auto group = net.open_group("ipc:///tmp/prc-renewals-" + std::to_string(::getpid()), threads);
    const answering server(std::move(group.ports.front()), echo);
    auto client = net.open();
    int largest = 0;
    for (int i = 0; i < 200; ++i) {
      const int channel = client->connect(group.addresses.front());
      largest = std::max(largest, channel);
      client->send(channel, saying(std::to_string(i)));
      incoming in;
      ASSERT_TRUE(client->receive(in, at_most));
      EXPECT_EQ(in.channel, channel);
      EXPECT_EQ(frame_text(in), std::to_string(i));
      client->disconnect(channel);
    }
    EXPECT_LE(largest, 1) << "waiting goes over all of them";
  }
}

TEST(ZmqTransport, MessagesOfABatchKeepTheirChannelsWhenItsOwnerReconnects) {
  zmq_transport net;
  auto bound = net.open();
  const auto address = bound->bind("tcp://127.0.0.1:*");
  auto client = net.open();
  const int first = client->connect(address);
  client->send(first, saying("a"));
  incoming in;
  ASSERT_TRUE(bound->receive(in, at_most));
  client->disconnect(first);
  EXPECT_NE(client->connect(address), first) << "it may hold messages of the first one";
  EXPECT_FALSE(client->receive(in, milliseconds(0)));
  EXPECT_EQ(client->connect(address), first);
}

TEST(ZmqTransport, TrafficOfATcpConnectionIsKnownAfterItsFirstMessage) {
  zmq_transport net;
  auto bound = net.open();
  const auto address = bound->bind("tcp://127.0.0.1:*");
  const answering server(std::move(bound), echo);
  auto client = net.open();
  const int channel = client->connect(address);
  EXPECT_EQ(client->traffic(channel), 0U);
  incoming in;
  std::uint64_t before = 0;
  for (int i = 0; i < 3; ++i) {
    client->send(channel, saying(std::string(100'000, 'x')));
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_GE(client->traffic(channel), before + 190'000);
    before = client->traffic(channel);
  }
  client->disconnect(channel);
  EXPECT_EQ(client->traffic(channel), 0U);
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
    EXPECT_EQ(frame_text(in), "shutdown");
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
