// SPDX-License-Identifier: BSD-3-Clause
//
// Strangers that connect to a port of ours, whatever process it belongs to; and ZeroMQ sockets of the program itself.
#include "net/connection_guard.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <zmq.hpp>

#include "net/fd_limit.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using namespace std::chrono_literals;
using test::answering;
using test::at_most;
using test::echo;
using test::frame_text;
using test::saying;

/// A connection that implements ZMTP without libzmq.
class stranger {
 public:
  explicit stranger(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  stranger(stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;
  stranger& operator=(stranger&&) = delete;
  ~stranger() {
    if (fd_ >= 0) close(fd_);
  }

  void greet() const {
    std::string greeting(64, '\0');
    greeting[0] = '\xff';
    greeting[9] = '\x7f';
    greeting[10] = '\x03';
    greeting.replace(12, 4, "NULL");
    const std::string ready = std::string("\x05READY\x0bSocket-Type\0\0\0\x06", 22) + "DEALER";
    send(greeting + '\x04' + static_cast<char>(ready.size()) + ready);
  }
  /// Returns: false when the connection was dropped.
  bool send(const std::string& bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  [[nodiscard]] bool is_dropped(std::chrono::seconds within) const {
    const timeval limit{.tv_sec = within.count(), .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char bytes[4096];
    ssize_t n = 0;
    while ((n = recv(fd_, bytes, sizeof bytes, 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  int fd_;
};

std::string asked(zmq_transport& net, const std::string& address) {
  const auto client = net.open();
  client->send(client->connect(address), saying("still there"));
  incoming in;
  return client->receive(in, at_most) ? frame_text(in) : std::string();
}

class ConnectionGuard : public testing::TestWithParam<std::size_t> {};

TEST_P(ConnectionGuard, AnEndlessMessageEndsItsConnectionWhereverItIsBound) {
  std::atomic<int> dropped{0};
  zmq_transport net({}, [&](std::string_view why) {
    EXPECT_NE(why.find("too many parts"), std::string_view::npos) << why;
    ++dropped;
  });
  auto group = net.open_group("tcp://127.0.0.1:*", GetParam());
  const auto address = group.addresses.front().substr(0, group.addresses.front().find('#'));
  const answering server(std::move(group.ports.front()), echo);
  const stranger attacker(address);
  attacker.greet();
  std::string parts;
  for (int i = 0; i < 1000; ++i) parts += std::string("\x01\0", 2);
  for (int i = 0; i < 1000 && attacker.send(parts); ++i) {
  }
  EXPECT_TRUE(attacker.is_dropped(20s));
  EXPECT_EQ(dropped, 1);
  EXPECT_EQ(asked(net, group.addresses.front()), "still there");
}
INSTANTIATE_TEST_SUITE_P(Ports, ConnectionGuard, testing::Values(1, 2));

TEST(ConnectionGuard, ConnectionsThatSendNothingGiveWayToNewOnes) {
  raise_descriptor_limit();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 4096) GTEST_SKIP() << "the limit of descriptors is too low";
  zmq_transport net;
  auto bound = net.open();
  const auto address = bound->bind("tcp://127.0.0.1:*");
  const answering server(std::move(bound), echo);
  std::vector<stranger> idle;
  idle.emplace_back(address);
  EXPECT_EQ(asked(net, address), "still there");
  for (int i = 0; i < 1100; ++i) {
    idle.emplace_back(address);
    if (i % 2 == 0) idle.back().greet();                // a whole handshake, and no message
    if (i % 20 == 0) std::this_thread::sleep_for(5ms);  // for the backlog
  }
  EXPECT_TRUE(idle.front().is_dropped(3s)) << "before the time limit of a handshake";
  EXPECT_EQ(asked(net, address), "still there");
}

TEST(ConnectionGuard, SocketsOfTheProgramItselfHaveNoLimits) {
  zmq_transport net;
  const auto ours = net.open();
  ours->bind("tcp://127.0.0.1:*");
  zmq::context_t context;
  zmq::socket_t receiver(context, zmq::socket_type::pull);
  receiver.set(zmq::sockopt::rcvtimeo, 10'000);
  receiver.bind("tcp://127.0.0.1:*");
  zmq::socket_t sender(context, zmq::socket_type::push);
  sender.connect(receiver.get(zmq::sockopt::last_endpoint));
  constexpr int parts = 100;
  for (int i = 1; i <= parts; ++i)
    ASSERT_TRUE(sender.send(zmq::buffer("part"), i < parts ? zmq::send_flags::sndmore : zmq::send_flags::none));
  zmq::message_t part;
  int received = 0;
  do {
    ASSERT_TRUE(receiver.recv(part));
    ++received;
  } while (part.more());
  EXPECT_EQ(received, parts);
}

}  // namespace
}  // namespace paracel::net
