// SPDX-License-Identifier: BSD-3-Clause
//
// Connections that ZeroMQ gives up because of what has arrived: they are replaced.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "net/lane_address.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/relay.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using test::answering;
using test::at_most;
using test::echo;
using test::frame_text;
using test::listening;
using test::relay;
using test::saying;

constexpr curve_secret members_key{1, 2, 3, 4};

class ZmqReopening : public testing::Test {
 protected:
  ZmqReopening() {
    auto p = job.open();
    address = p->bind("tcp://127.0.0.1:*");
    server.emplace(std::move(p), echo);
  }

  zmq_transport job{{}, {}, members_key};
  std::string address;
  std::optional<answering> server;
};

/// Asks until an answer comes, as a client that sends again what is unanswered.
std::string answer_to(port& client, int channel, std::string_view request) {
  incoming in;
  for (const auto end = steady_clock::now() + at_most; steady_clock::now() < end;) {
    client.send(channel, saying(request));
    if (client.receive(in, 100ms)) return in.channel == channel ? frame_text(in) : std::string("another's");
  }
  return "nothing";
}

/// A member, and how often it was told that what arrived from an address was not taken.
struct told_member {
  explicit told_member(std::string_view of) : from(of) {}
  std::string from;
  std::atomic<int> told{0};
  zmq_transport net{{},
                    [this](std::string_view why) {
                      EXPECT_NE(why.find("from " + from + " broke the protocol"), std::string_view::npos) << why;
                      EXPECT_NE(why.find("was changed on the way"), std::string_view::npos) << why;
                      ++told;
                    },
                    members_key};
};

TEST_F(ZmqReopening, AConnectionOnWhichAReplyWasChangedIsReplaced) {
  std::size_t handshake = 0;
  std::size_t all = 0;
  {
    const relay wire(address);
    const auto client = job.open();
    const int channel = client->connect(wire.address());
    EXPECT_EQ(answer_to(*client, channel, "a request"), "a request");
    all = wire.returned();
    EXPECT_EQ(answer_to(*client, channel, "a request"), "a request");
    handshake = 2 * all - wire.returned();
  }
  ASSERT_GT(handshake, 64U + 170U);
  ASSERT_GT(all, handshake + 33);
  // In the greeting, WELCOME, READY and the reply: its length, and its box.
  for (const std::size_t changed :
       {std::size_t{14}, std::size_t{64 + 100}, handshake - 20, handshake + 1, handshake + 20, all - 1}) {
    const relay wire(address, ~std::size_t{0}, {.from_server = changed});
    told_member member(wire.address());
    const auto client = member.net.open();
    const int channel = client->connect(wire.address());
    for (const auto* request : {"a request", "another", "and another"})
      EXPECT_EQ(answer_to(*client, channel, request), request) << changed;
    EXPECT_EQ(member.told, 1) << changed;
  }
}

/// Answers every connection with the greeting of a program that does not encrypt, and says no more.
class plain_greeter {
 public:
  plain_greeter() {
    std::tie(listener_, address_) = listening();
    thread_ = std::thread([this] { run(); });
  }
  ~plain_greeter() {
    stop_ = true;
    thread_.join();
    for (const int fd : open_) close(fd);
    close(listener_);
  }
  plain_greeter(const plain_greeter&) = delete;
  plain_greeter& operator=(const plain_greeter&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  void run() {
    std::string greeting(64, '\0');
    greeting[0] = '\xff';
    greeting.replace(9, 7, "\x7f\x03\0NULL", 7);
    while (!stop_) {
      pollfd next{listener_, POLLIN, 0};
      if (poll(&next, 1, 10) != 1) continue;
      open_.push_back(accept(listener_, nullptr, nullptr));
      send(open_.back(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
    }
  }
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::vector<int> open_;
  std::thread thread_;
};

TEST_F(ZmqReopening, AStrangerWhoListensFirstDoesNotKeepAMemberFromItsServer) {
  const plain_greeter stranger;
  const relay wire(address, ~std::size_t{0}, {.leads_to = stranger.address()});
  told_member member(wire.address());
  const auto client = member.net.open();
  EXPECT_EQ(answer_to(*client, client->connect(wire.address()), "a request"), "a request");
  EXPECT_EQ(member.told, 1);
}

TEST_F(ZmqReopening, ChannelsThatShareAConnectionThatIsReplacedAllUseTheNewOne) {
  auto group = job.open_group("tcp://127.0.0.1:*", 2);
  const answering first(std::move(group.ports[0]), echo);
  const answering second(std::move(group.ports[1]), echo);
  for (const bool of_group : {false, true}) {  // a port of a group waits in another way
    const relay wire(group.addresses[0], ~std::size_t{0}, {.from_server = 64 + 100});
    told_member member(wire.address());
    auto own = member.net.open_group("tcp://127.0.0.1:*", 2);
    const auto client = of_group ? std::move(own.ports[0]) : member.net.open();
    const std::array channels{client->connect(lane_address::of(wire.address(), 0)),
                              client->connect(lane_address::of(wire.address(), 1))};
    for (const auto* request : {"a request", "another"})
      for (const int channel : channels) EXPECT_EQ(answer_to(*client, channel, request), request);
    EXPECT_EQ(member.told, 1);
  }
}

TEST_F(ZmqReopening, APeerThatNeverSpeaksTheProtocolIsNotConnectedToAllTheTime) {
  const plain_greeter stranger;
  told_member member(stranger.address());
  const auto client = member.net.open();
  const int channel = client->connect(stranger.address());
  const auto begin = steady_clock::now();
  const auto passed = [begin] { return steady_clock::now() - begin; };
  while (passed() < 300ms || (member.told == 0 && passed() < 20s)) {
    client->send(channel, saying("a request"));
    incoming in;
    EXPECT_FALSE(client->receive(in, 1ms));
  }
  EXPECT_GT(member.told, 0);
  EXPECT_LE(member.told, passed() / 50ms + 1);
}

}  // namespace
}  // namespace paracel::net
