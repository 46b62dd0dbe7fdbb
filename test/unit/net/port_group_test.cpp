// SPDX-License-Identifier: BSD-3-Clause
//
// Ports that share one connection to each client (transport::open_group), in every transport; then what only ZeroMQ's
// sockets can do to them.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "net/lane_address.hpp"
#include "net/zmq_shared_router.hpp"
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
using test::is_filled_buffer;
using test::saying;

/// Ports of a group, each answered by a thread of its own.
class answering_group {
 public:
  answering_group(transport& net, const std::string& address, std::size_t ports,
                  const std::function<void(std::size_t, port&, incoming&)>& f) {
    auto group = net.open_group(address, ports);
    addresses_ = std::move(group.addresses);
    for (std::size_t i = 0; i < ports; ++i) {
      threads_.push_back(
          std::make_unique<answering>(std::move(group.ports[i]), [i, f](port& p, incoming& in) { f(i, p, in); }));
    }
  }
  [[nodiscard]] const std::string& address(std::size_t i) const { return addresses_[i]; }
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<answering>> threads_;
};

/// Replies with the number of the port and the request.
void reply_with_number(std::size_t i, port& p, incoming& in) {
  const auto text = std::to_string(i) + ":" + frame_text(in);
  p.reply(in.from, {.head = bytes_of(text), .tail = in.tail});
}

TEST(LaneAddress, IsABaseAndALane) {
  const auto a = lane_address::parse("ipc:///tmp/x#3");
  EXPECT_EQ(a.base, "ipc:///tmp/x");
  EXPECT_EQ(a.lane, 3);
  EXPECT_TRUE(a.is_shared);
  EXPECT_EQ(lane_address::of("tcp://h:1", 1023), "tcp://h:1#1023");
  for (const char* plain : {"tcp://h:1", "ipc:///a#b", "ipc:///a#", "ipc:///a#1024", "ipc:///a#-1", "ipc:///a#1/s"}) {
    const auto p = lane_address::parse(plain);
    EXPECT_EQ(p.base, plain);
    EXPECT_FALSE(p.is_shared) << plain;
  }
}

TEST(LaneAddress, AFrameIsEmptyForTheFirstLaneAndTwoBytesForOthers) {
  EXPECT_EQ(lane_frame(0).bytes().size(), 0U);
  for (const std::uint16_t lane : {std::uint16_t{1}, std::uint16_t{256}, std::uint16_t{1023}}) {
    EXPECT_EQ(lane_frame::parse(lane_frame(lane).bytes()), lane);
  }
  for (const std::string_view bad : {std::string_view("\0\0", 2), std::string_view("\0\4", 2), std::string_view("x"),
                                     std::string_view("abc"), std::string_view("\1\0\0", 3)}) {
    EXPECT_FALSE(lane_frame::parse(bytes_of(bad)).has_value());
  }
}

template <typename Setting>
class PortGroup : public testing::Test {};
using settings = testing::Types<test::inproc_setting, test::ipc_setting, test::tcp_setting, test::encrypted_setting>;
TYPED_TEST_SUITE(PortGroup, settings, test::setting_names);

TYPED_TEST(PortGroup, EachPortGetsItsRequestsAndItsRepliesComeBackOnTheirChannels) {
  TypeParam s;
  const answering_group group(s.net, s.wildcard(), 4, reply_with_number);
  auto client = s.net.open();
  std::map<int, std::string> expected;
  for (std::size_t i = 4; i-- > 0;) {
    const int channel = client->connect(group.address(i));
    client->send(channel, {.head = bytes_of("ask"), .tail = filled_buffer(70'000 + i, 1)});
    expected[channel] = std::to_string(i) + ":ask";
  }
  for (std::size_t n = 0; n < 4; ++n) {
    incoming in;
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_EQ(frame_text(in), expected[in.channel]);
    EXPECT_TRUE(is_filled_buffer(in.tail, in.tail.size(), 1));
    expected.erase(in.channel);
  }
  EXPECT_TRUE(expected.empty());
}

TYPED_TEST(PortGroup, OfOnePortIsAPlainPort) {
  TypeParam s;
  auto group = s.net.open_group(s.wildcard(), 1);
  EXPECT_FALSE(lane_address::parse(group.addresses.front()).is_shared);
  const answering server(std::move(group.ports.front()), echo);
  auto client = s.net.open();
  client->send(client->connect(group.addresses.front()), saying("x"));
  incoming in;
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "x");
}

TYPED_TEST(PortGroup, AnAddressInUseCannotBeBound) {
  TypeParam s;
  const auto group = s.net.open_group(s.wildcard(), 2);
  const auto base = std::string(lane_address::parse(group.addresses.front()).base);
  EXPECT_THROW(s.net.open_group(s.taken(base), 2), network_error);
}

/// Many clients, many ports, many requests in flight: each port gets those of each client in order, and every one is
/// answered once.
TYPED_TEST(PortGroup, RequestsOfAChannelStayInOrderUnderLoad) {
  constexpr std::size_t ports = 3;
  constexpr std::size_t clients = 4;
  const std::uint32_t requests = std::is_base_of_v<test::tcp_setting, TypeParam> ? 3000 : 6000;
  TypeParam s;
  std::array<std::map<std::uint32_t, std::uint32_t>, ports> last;  // by port and client
  std::atomic<int> wrong{0};
  const answering_group group(s.net, s.wildcard(), ports, [&](std::size_t i, port& p, incoming& in) {
    std::array<std::uint32_t, 2> sent{};
    std::memcpy(sent.data(), in.frame.data(), sizeof sent);
    if (auto& before = last[i][sent[0]]; sent[1] != ++before) ++wrong;
    p.reply(in.from, {.head = in.frame});
  });
  std::vector<std::thread> threads;
  for (std::uint32_t c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      auto client = s.net.open();
      std::array<int, ports> channels{};
      for (std::size_t i = 0; i < ports; ++i) channels[i] = client->connect(group.address(i));
      std::map<int, std::uint32_t> answered;
      std::uint32_t sent = 0;
      std::size_t open = 0;
      std::array<incoming, 8> in;
      while (sent < requests || open != 0) {
        for (; sent < requests && open < 200; ++sent) {
          for (const int channel : channels) {
            const std::array<std::uint32_t, 2> words{c, sent + 1};
            client->send(channel, {.head = std::as_bytes(std::span(words))});
            ++open;
          }
        }
        const auto n = client->receive_batch(in, at_most);
        if (n == 0) {
          ++wrong;
          return;
        }
        for (const auto& r : std::span(in).first(n)) {
          std::array<std::uint32_t, 2> words{};
          std::memcpy(words.data(), r.frame.data(), sizeof words);
          if (words[0] != c || words[1] != ++answered[r.channel]) ++wrong;
        }
        open -= n;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

/// What a port calls a client, and the reply that the client receives.
struct answer {
  std::string peer;
  std::string text;
};
answer ask(port& client, int channel) {
  client.send(channel, saying("who am I"));
  incoming in;
  for (;;) {
    if (!client.receive(in, at_most)) return {};
    if (in.channel == channel) return {frame_text(in), frame_text(in)};
  }
}
void reply_with_peer(std::size_t, port& p, incoming& in) { p.reply(in.from, {.head = in.from.bytes()}); }

TYPED_TEST(PortGroup, AChannelThatIsRenewedIsANewPeerAndTheOthersStayWhoTheyAre) {
  TypeParam s;
  const answering_group group(s.net, s.wildcard(), 3, reply_with_peer);
  auto client = s.net.open();
  std::array<int, 3> channels{};
  std::array<std::string, 3> before;
  for (std::size_t i = 0; i < 3; ++i) channels[i] = client->connect(group.address(i));
  for (std::size_t i = 0; i < 3; ++i) before[i] = ask(*client, channels[i]).peer;
  for (const auto& name : before) EXPECT_FALSE(name.empty());

  client->disconnect(channels[1]);
  EXPECT_THROW(client->send(channels[1], saying("x")), network_error);
  EXPECT_EQ(ask(*client, channels[0]).peer, before[0]);
  channels[1] = client->connect(group.address(1));
  const auto renewed = ask(*client, channels[1]).peer;
  EXPECT_NE(renewed, before[1]);
  EXPECT_EQ(ask(*client, channels[0]).peer, before[0]);
  EXPECT_EQ(ask(*client, channels[2]).peer, before[2]);

  client->disconnect(channels[1]);  // again, and then all of them
  channels[1] = client->connect(group.address(1));
  std::set<std::string> names{before[1], renewed};
  EXPECT_TRUE(names.insert(ask(*client, channels[1]).peer).second);
  for (std::size_t i : {0U, 2U}) {
    client->disconnect(channels[i]);
    channels[i] = client->connect(group.address(i));
    const auto now = ask(*client, channels[i]).peer;
    EXPECT_FALSE(now.empty());
    EXPECT_NE(now, before[i]);
  }
}

TYPED_TEST(PortGroup, RepliesToAChannelThatWasLeftAreDropped) {
  TypeParam s;
  auto group = s.net.open_group(s.wildcard(), 2);
  auto client = s.net.open();
  const int left = client->connect(group.addresses[0]);
  const int stays = client->connect(group.addresses[1]);
  client->send(left, saying("late"));
  client->send(stays, saying("kept"));
  client->disconnect(left);
  const int again = client->connect(group.addresses[0]);
  client->send(again, saying("new"));
  const answering first(std::move(group.ports[0]), echo);
  const answering second(std::move(group.ports[1]), echo);
  std::set<std::string> got;
  incoming in;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_EQ(in.channel, frame_text(in) == "kept" ? stays : again);
    got.insert(frame_text(in));
  }
  EXPECT_EQ(got, (std::set<std::string>{"kept", "new"}));
  EXPECT_FALSE(client->receive(in, milliseconds(50)));
}

TYPED_TEST(PortGroup, TwoChannelsToOnePortAreTwoPeers) {
  TypeParam s;
  const answering_group group(s.net, s.wildcard(), 2, reply_with_peer);
  auto client = s.net.open();
  const int one = client->connect(group.address(1));
  const int two = client->connect(group.address(1));
  EXPECT_NE(ask(*client, one).peer, ask(*client, two).peer);
}

/// A thread that is busy for long neither delays the requests of the others nor loses its own.
TYPED_TEST(PortGroup, ABusyPortHoldsUpNobodyElse) {
  TypeParam s;
  std::atomic<bool> may_go_on{false};
  std::atomic<bool> is_busy{false};
  const answering_group group(s.net, s.wildcard(), 3, [&](std::size_t i, port& p, incoming& in) {
    if (frame_text(in) == "work") {
      is_busy = true;
      const auto end = steady_clock::now() + at_most;
      while (!may_go_on && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    }
    reply_with_number(i, p, in);
  });
  auto client = s.net.open();
  for (std::size_t busy = 0; busy < 3; ++busy) {
    std::vector<int> channels;
    for (const auto& a : group.addresses()) channels.push_back(client->connect(a));
    is_busy = may_go_on = false;
    client->send(channels[busy], saying("work"));
    while (!is_busy) std::this_thread::sleep_for(milliseconds(1));
    for (int i = 0; i < 20; ++i) client->send(channels[busy], saying("queued"));
    incoming in;
    for (int turn = 0; turn < 50; ++turn) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (i == busy) continue;
        client->send(channels[i], saying("ask"));
        ASSERT_TRUE(client->receive(in, at_most));
        EXPECT_EQ(in.channel, channels[i]);
        EXPECT_EQ(frame_text(in), std::to_string(i) + ":ask");
      }
    }
    EXPECT_FALSE(may_go_on);
    may_go_on = true;
    for (int i = 0; i < 21; ++i) {
      ASSERT_TRUE(client->receive(in, at_most));
      EXPECT_EQ(in.channel, channels[busy]);
    }
    for (const int c : channels) client->disconnect(c);
  }
}

/// Ports of servers make requests too, over channels of their own, while others wait for theirs.
TYPED_TEST(PortGroup, APortOfAGroupIsAlsoAClient) {
  TypeParam s;
  const answering_group back(s.net, s.wildcard(), 2, reply_with_number);
  auto front = s.net.open_group(s.wildcard(), 2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i, p = std::move(front.ports[i])] {
      const int onward = p->connect(back.address(i));
      std::map<std::string, peer> waiting;
      incoming in;
      while (!stop) {
        if (!p->receive(in, milliseconds(20))) continue;
        const auto text = frame_text(in);
        if (in.channel < 0) {
          waiting[std::to_string(i) + ":" + text] = in.from;
          p->send(onward, saying(text));
        } else {
          p->reply(waiting[text], saying(text));
          waiting.erase(text);
        }
      }
    });
  }
  auto client = s.net.open();
  std::array<int, 2> channels{client->connect(front.addresses[0]), client->connect(front.addresses[1])};
  for (int turn = 0; turn < 200; ++turn) {
    for (std::size_t i = 0; i < 2; ++i) client->send(channels[i], saying(std::to_string(turn)));
    for (std::size_t i = 0; i < 2; ++i) {
      incoming in;
      ASSERT_TRUE(client->receive(in, at_most));
      const auto port = std::string(in.channel == channels[0] ? "0:" : "1:");
      EXPECT_EQ(frame_text(in), port + std::to_string(turn));
    }
  }
  stop = true;
  for (auto& t : threads) t.join();
}

TYPED_TEST(PortGroup, WhenOnePortClosesTheOthersGoOn) {
  TypeParam s;
  auto group = s.net.open_group(s.wildcard(), 3);
  auto client = s.net.open();
  std::vector<int> channels;
  for (const auto& a : group.addresses) channels.push_back(client->connect(a));
  incoming in;
  client->send(channels[1], saying("never answered"));
  EXPECT_FALSE(group.ports[0]->receive(in, milliseconds(50)));
  group.ports[1].reset();
  const answering first(std::move(group.ports[0]), echo);
  const answering third(std::move(group.ports[2]), echo);
  for (const int channel : {channels[0], channels[2]}) {
    client->send(channel, saying("x"));
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_EQ(in.channel, channel);
  }
}

TYPED_TEST(PortGroup, ClientsThatDieAreForgotten) {
  TypeParam s;
  const answering_group group(s.net, s.wildcard(), 2, reply_with_number);
  for (int turn = 0; turn < 20; ++turn) {
    auto client = s.net.open();
    const std::array<int, 2> channels{client->connect(group.address(0)), client->connect(group.address(1))};
    for (int i = 0; i < 50; ++i) {
      for (const int c : channels) client->send(c, saying("x"));
    }
    incoming in;
    ASSERT_TRUE(client->receive(in, at_most));  // and is destroyed with the others unanswered
  }
}

// ---- ZeroMQ ---------------------------------------------------------------------------------------------------------

/// A plain ZeroMQ socket, as in a foreign program.
class raw_dealer {
 public:
  raw_dealer(zmq::socket_type type, const std::string& lane) : socket_(context_, type) {
    socket_.set(zmq::sockopt::linger, 1000);
    socket_.set(zmq::sockopt::rcvtimeo, 10000);
    socket_.set(zmq::sockopt::sndhwm, 0);
    address_ = lane_address::parse(lane).base;
  }
  zmq::socket_t& socket() { return socket_; }
  void connect() { socket_.connect(address_); }
  void send(const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto flags = i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
      ASSERT_TRUE(socket_.send(zmq::buffer(parts[i]), flags));
    }
  }
  std::vector<std::string> receive() {
    std::vector<std::string> parts;
    zmq::message_t part;
    do {
      if (!socket_.recv(part)) return {};
      parts.push_back(part.to_string());
    } while (part.more());
    return parts;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::string address_;
};

TEST(ZmqPortGroup, APlainReqSocketReachesTheFirstPort) {
  test::ipc_setting s;
  const answering_group group(s.net, s.wildcard(), 3, reply_with_number);
  raw_dealer req(zmq::socket_type::req, group.address(0));
  req.connect();
  for (const std::string word : {"one", "two"}) {
    req.send({word});
    EXPECT_EQ(req.receive(), std::vector<std::string>{"0:" + word});
  }
}

TEST(ZmqPortGroup, TheLaneIsEchoed) {
  test::ipc_setting s;
  const answering_group group(s.net, s.wildcard(), 3, reply_with_number);
  raw_dealer dealer(zmq::socket_type::dealer, group.address(0));
  dealer.connect();
  const std::string second("\2\0", 2);
  dealer.send({second, "x"});
  EXPECT_EQ(dealer.receive(), (std::vector<std::string>{second, "2:x"}));
}

TEST(ZmqPortGroup, MalformedAndUnknownLanesAreDropped) {
  test::ipc_setting s;
  const answering_group group(s.net, s.wildcard(), 3, reply_with_number);
  raw_dealer dealer(zmq::socket_type::dealer, group.address(0));
  dealer.connect();
  for (const std::string& lane : {std::string("\3\0", 2), std::string("\0\0", 2), std::string("\377\377", 2),
                                  std::string("\1"), std::string("\1\0\0", 3), std::string(100, 'x')}) {
    dealer.send({lane, "dropped"});
    dealer.send({lane, "dropped", "with a tail"});
  }
  dealer.send({"", "a", "b", "too many"});
  dealer.send({"\1"});
  dealer.send({"", "answered"});
  EXPECT_EQ(dealer.receive(), (std::vector<std::string>{"", "0:answered"}));
}

TEST(ZmqPortGroup, APortWithoutLanesDropsRequestsToOne) {
  test::ipc_setting s;
  auto p = s.net.open();
  const auto address = p->bind(s.wildcard());
  const answering server(std::move(p), echo);
  raw_dealer dealer(zmq::socket_type::dealer, address);
  dealer.connect();
  dealer.send({std::string("\1\0", 2), "dropped"});
  dealer.send({"", "answered"});
  EXPECT_EQ(dealer.receive(), (std::vector<std::string>{"", "answered"}));
}

/// Identities that clients choose themselves are never taken for another client's, whatever they end in.
TEST(ZmqPortGroup, PeersAreToldApartWhateverTheyCallThemselves) {
  test::ipc_setting s;
  const answering_group group(s.net, s.wildcard(), 2, reply_with_peer);
  std::set<std::string> peers;
  for (const std::string& name : {std::string("a"), std::string("a\1\0", 3), std::string(29, 'n')}) {
    raw_dealer dealer(zmq::socket_type::dealer, group.address(0));
    dealer.socket().set(zmq::sockopt::routing_id, name);
    dealer.connect();
    for (const std::string& lane : {std::string(), std::string("\1\0", 2)}) {
      dealer.send({lane, "x"});
      const auto reply = dealer.receive();
      ASSERT_EQ(reply.size(), 2U);
      EXPECT_TRUE(peers.insert(reply[1]).second);
    }
  }
  raw_dealer dealer(zmq::socket_type::dealer, group.address(0));
  dealer.socket().set(zmq::sockopt::routing_id, std::string(30, 'n'));  // no room for the lane
  dealer.socket().set(zmq::sockopt::rcvtimeo, 200);
  dealer.connect();
  dealer.send({"", "x"});
  EXPECT_TRUE(dealer.receive().empty());
}

TEST(ZmqPortGroup, AClientHasOneConnectionForAllPorts) {
  const auto descriptors = [] {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& d : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
    return n;
  };
  constexpr std::size_t ports = 16;
  test::ipc_setting s;
  const answering_group group(s.net, s.wildcard(), ports, reply_with_number);
  auto client = s.net.open();
  incoming in;
  client->send(client->connect(group.address(0)), saying("x"));
  ASSERT_TRUE(client->receive(in, at_most));
  const auto before = descriptors();
  for (std::size_t i = 1; i < ports; ++i) {
    client->send(client->connect(group.address(i)), saying("x"));
    ASSERT_TRUE(client->receive(in, at_most));
  }
  EXPECT_EQ(descriptors(), before);
}

/// A thread that does not receive is sent no more than its queue holds; then connections are no longer read, and once
/// it receives again all are served.
TEST(ZmqPortGroup, TheQueueOfABusyPortIsBounded) {
  constexpr std::size_t size = std::size_t{4} << 20;
  constexpr std::size_t requests = 2 * zmq_shared_router::most_queued_bytes / size;
  test::ipc_setting s;
  auto group = s.net.open_group(s.wildcard(), 2);
  auto busy = std::move(group.ports[0]);
  std::atomic<std::size_t> others{0};
  const answering other(std::move(group.ports[1]), [&](port& p, incoming& in) {
    ++others;
    echo(p, in);
  });
  auto client = s.net.open();
  auto asker = s.net.open();
  const int to_busy = client->connect(group.addresses[0]);
  const int to_other = asker->connect(group.addresses[1]);
  const std::string text(size, 'b');
  for (std::size_t i = 0; i < requests; ++i) client->send(to_busy, saying(text));
  // Eventually it is full, and then no connection is read.
  incoming in;
  bool is_full = false;
  for (int i = 0; i < 1000 && !is_full; ++i) {
    asker->send(to_other, saying("ask"));
    is_full = !asker->receive(in, milliseconds(300));
  }
  ASSERT_TRUE(is_full);
  const auto before = others.load();
  // The busy port receives again: it gets all of its requests in order, and the other port is served too.
  for (std::size_t i = 0; i < requests; ++i) {
    ASSERT_TRUE(busy->receive(in, at_most)) << i;
    ASSERT_EQ(in.frame.size(), size);
    busy->reply(in.from, saying("done"));
  }
  ASSERT_TRUE(asker->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "ask");
  EXPECT_GT(others.load(), before);
  for (std::size_t i = 0; i < requests; ++i) ASSERT_TRUE(client->receive(in, at_most));
}

}  // namespace
}  // namespace paracel::net
