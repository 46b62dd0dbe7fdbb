// SPDX-License-Identifier: BSD-3-Clause
//
// Strangers that connect to a port of ours, whatever process it belongs to; and ZeroMQ sockets of the program itself.
#include "net/connection_guard.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <zmq.hpp>

#include "net/frame_parts.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/temporary_folder.hpp"
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
  explicit stranger(const std::string& address) : stranger(is_local(address)) { connect(address); }
  /// Takes a descriptor, and connects later.
  explicit stranger(bool is_local) : fd_(socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  stranger(stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;
  stranger& operator=(stranger&&) = delete;
  ~stranger() {
    if (fd_ >= 0) close(fd_);
  }

  static bool is_local(const std::string& address) { return address.starts_with("ipc://"); }
  void connect(const std::string& address) const {
    if (is_local(address)) {
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      address.copy(to.sun_path, sizeof to.sun_path - 1, 6);
      EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
      return;
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
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
  /// The whole handshake, then a message. ZeroMQ closes a connection whose first message arrives before its handshake.
  void greet_and_send(const std::string& message) const {
    greet();
    wait_at_most(20s);
    std::string seen;
    char bytes[256];
    while (seen.find("Identity") == std::string::npos) {
      const auto n = recv(fd_, bytes, sizeof bytes, 0);
      if (n <= 0) return;
      seen.append(bytes, static_cast<std::size_t>(n));
    }
    send(message);
  }
  /// Returns: false when the connection was dropped.
  bool send(const std::string& bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  /// ZeroMQ greets each connection that it keeps.
  [[nodiscard]] bool is_greeted() const {
    wait_at_most(20s);
    char first = 0;
    return recv(fd_, &first, 1, 0) == 1;
  }
  [[nodiscard]] bool is_dropped(std::chrono::seconds within) const {
    wait_at_most(within);
    char bytes[4096];
    ssize_t n = 0;
    while ((n = recv(fd_, bytes, sizeof bytes, 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  void wait_at_most(std::chrono::seconds time) const {
    const timeval limit{.tv_sec = time.count(), .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  int fd_;
};

/// Waits until it holds. Returns: whether it does.
template <class Condition>
bool comes_true(const Condition& condition) {
  for (const auto end = std::chrono::steady_clock::now() + 60s; !condition(); std::this_thread::sleep_for(5ms))
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

std::string asked(zmq_transport& net, const std::string& address) {
  const auto client = net.open();
  client->send(client->connect(address), saying("still there"));
  incoming in;
  return client->receive(in, at_most) ? frame_text(in) : std::string();
}

class ZmqConnectionGuard : public testing::TestWithParam<std::size_t> {};

TEST_P(ZmqConnectionGuard, AnEndlessMessageEndsItsConnectionWhereverItIsBound) {
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
  EXPECT_TRUE(comes_true([&] { return dropped == 1; }));
  EXPECT_EQ(asked(net, group.addresses.front()), "still there");
}
INSTANTIATE_TEST_SUITE_P(Ports, ZmqConnectionGuard, testing::Values(1, 2));

/// Another limit of descriptors, until it is destroyed.
class soft_limit {
 public:
  explicit soft_limit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{.rlim_cur = soft, .rlim_max = before_.rlim_max};
    is_set_ = setrlimit(RLIMIT_NOFILE, &now) == 0;
  }
  soft_limit(const soft_limit&) = delete;
  soft_limit& operator=(const soft_limit&) = delete;
  ~soft_limit() { setrlimit(RLIMIT_NOFILE, &before_); }
  [[nodiscard]] bool is_set() const noexcept { return is_set_; }
  static rlim_t next_descriptor() {
    const int next = dup(STDERR_FILENO);
    close(next);
    return static_cast<rlim_t>(next);
  }

 private:
  rlimit before_{};
  bool is_set_ = false;
};

TEST(ZmqConnectionGuard, AnnouncingALargeFrameEndsAConnectionOverTcpBeforeAnyOfItHasArrived) {
  const test::temporary_folder folder;
  zmq_transport net;
  auto bound = net.open();
  const auto address = bound->bind("tcp://127.0.0.1:*");
  const auto local = bound->bind("ipc://" + folder.path() + "/socket");
  const answering server(std::move(bound), echo);
  const auto announcement = [](std::size_t bytes) {
    std::string text("\x01\0\x02", 3);
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bytes >> shift & 0xff);
    return text;
  };
  const stranger large(address);
  large.greet_and_send(announcement(most_part_bytes + 1));
  EXPECT_TRUE(large.is_dropped(20s));
  const stranger smaller(address);
  smaller.greet_and_send(announcement(most_part_bytes));
  const stranger here(local);
  here.greet_and_send(announcement(most_part_bytes + 1));
  EXPECT_FALSE(smaller.is_dropped(1s));
  EXPECT_FALSE(here.is_dropped(1s));
  EXPECT_EQ(asked(net, address), "still there");
}

TEST(ZmqConnectionGuard, ConnectionsThatSendNothingGiveWayToNewOnes) {
  const soft_limit limit(4096);  // a quarter of which may send nothing
  if (!limit.is_set()) GTEST_SKIP() << "the limit of descriptors is too low";
  zmq_transport net;
  auto bound = net.open();
  const auto address = bound->bind("tcp://127.0.0.1:*");
  const answering server(std::move(bound), echo);
  std::vector<stranger> idle;
  idle.emplace_back(address);
  idle.front().greet();  // a whole handshake: its time limit does not apply
  EXPECT_EQ(asked(net, address), "still there");
  for (int i = 0; i < 1100; ++i) {
    idle.emplace_back(address);
    if (i % 2 == 0) idle.back().greet();                // a whole handshake, and no message
    if (i % 20 == 0) std::this_thread::sleep_for(5ms);  // for the backlog
  }
  EXPECT_TRUE(idle.front().is_dropped(60s));
  EXPECT_EQ(asked(net, address), "still there");
}

TEST(ZmqConnectionGuard, AnotherUserOfThisHostIsTurnedAwayWhereASocketHasNoPermissions) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string name = "paracel-test-" + std::to_string(getpid());
  std::atomic<int> dropped{0};
  zmq_transport net({}, [&](std::string_view why) {
    EXPECT_NE(why.find("another user"), std::string_view::npos) << why;
    ++dropped;
  });
  auto bound = net.open();
  const auto address = bound->bind("ipc://@" + name);
  const answering server(std::move(bound), echo);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  name.copy(to.sun_path + 1, sizeof to.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto greeted_as = [&](uid_t user) {
    const pid_t child = fork();
    if (child == 0) {
      const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
      char first = 0;
      const bool is_greeted = setresuid(user, user, user) == 0 &&
                              ::connect(fd, reinterpret_cast<const sockaddr*>(&to), size) == 0 &&
                              recv(fd, &first, 1, 0) == 1;
      _exit(is_greeted ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(greeted_as(0));
  EXPECT_FALSE(greeted_as(65534));
  EXPECT_EQ(dropped, 1);
  EXPECT_EQ(asked(net, address), "still there");
}

/// A bound socket of ZeroMQ behind a guard with these limits.
class guarded_socket {
 public:
  guarded_socket(const connection_guard::limits& limits, const std::string& address) {
    guard_ = std::make_shared<connection_guard>(limits, [this](std::string_view why) {
      ++dropped;
      if (why.find(reason) == std::string_view::npos) ++dropped_otherwise;
    });
    connection_guard::install(reinterpret_cast<const void*>(&zmq_ctx_new));
    socket_.emplace(context_, zmq::socket_type::router);
    bound_ = guard_->open(reinterpret_cast<const void*>(&zmq_ctx_new), [&] {
      socket_->bind(address);
      return at = socket_->get(zmq::sockopt::last_endpoint);
    });
  }

  /// Waits for the next message of any connection. Returns: its last part.
  std::string received() {
    socket_->set(zmq::sockopt::rcvtimeo, 20'000);
    zmq::message_t part;
    do {
      if (!socket_->recv(part)) return "nothing";
    } while (part.more());
    return part.to_string();
  }

  std::string at;
  std::string_view reason;
  std::atomic<int> dropped{0};
  std::atomic<int> dropped_otherwise{0};

 private:
  zmq::context_t context_;
  std::shared_ptr<connection_guard> guard_;
  connection_guard::address bound_;
  std::optional<zmq::socket_t> socket_;
};

TEST(ZmqConnectionGuard, WhenThereAreTooManyNewOnesAreTurnedAway) {
  guarded_socket bound({.most_connections = 2}, "tcp://127.0.0.1:*");
  bound.reason = "too many connections are open";
  std::optional<stranger> first(bound.at);
  EXPECT_TRUE(first->is_greeted());
  const stranger second(bound.at);
  EXPECT_TRUE(second.is_greeted());
  EXPECT_EQ(bound.dropped, 0);
  const stranger third(bound.at);
  EXPECT_TRUE(third.is_dropped(60s));
  EXPECT_TRUE(comes_true([&] { return bound.dropped == 1; }));
  first.reset();
  EXPECT_TRUE(comes_true([&] { return stranger(bound.at).is_greeted(); })) << "there is room again";
  EXPECT_EQ(bound.dropped_otherwise, 0);
}

class ZmqWithoutDescriptors : public testing::TestWithParam<const char*> {};

std::string address_in(const test::temporary_folder& folder, std::string_view kind) {
  return kind == "ipc" ? "ipc://" + folder.path() + "/socket" : "tcp://127.0.0.1:*";
}
const std::string a_message("\x01\0\0\x03one", 7);
const std::string another("\x01\0\0\x05other", 9);

TEST_P(ZmqWithoutDescriptors, ANewConnectionIsTurnedAwayAndTheNextOnesAreAcceptedOnceThereAreSome) {
  const test::temporary_folder folder;
  guarded_socket bound({}, address_in(folder, GetParam()));
  bound.reason = "no file descriptor is left";
  const stranger before(bound.at);
  before.greet_and_send(a_message);
  ASSERT_EQ(bound.received(), "one");
  const stranger turned_away(stranger::is_local(bound.at));
  {
    const soft_limit none_left(soft_limit::next_descriptor());
    turned_away.connect(bound.at);
    EXPECT_TRUE(turned_away.is_dropped(60s));
  }
  EXPECT_TRUE(comes_true([&] { return bound.dropped == 1; }));
  EXPECT_EQ(bound.dropped_otherwise, 0);
  EXPECT_TRUE(stranger(bound.at).is_greeted());
  before.send(another);
  EXPECT_EQ(bound.received(), "other");
}

TEST_P(ZmqWithoutDescriptors, TheOldestThatHasSentNothingGivesWayAndOthersStay) {
  const test::temporary_folder folder;
  guarded_socket bound({}, address_in(folder, GetParam()));
  bound.reason = "file descriptor";
  const stranger member(bound.at);
  member.greet_and_send(a_message);
  ASSERT_EQ(bound.received(), "one");
  std::vector<stranger> idle;
  for (int i = 0; i < 3; ++i) {
    idle.emplace_back(bound.at);
    ASSERT_TRUE(idle.back().is_greeted());
  }
  std::vector<stranger> late;
  for (int i = 0; i < 3; ++i) late.emplace_back(stranger::is_local(bound.at));
  const soft_limit none_left(soft_limit::next_descriptor());
  for (std::size_t i = 0; i < late.size(); ++i) {
    late[i].connect(bound.at);
    EXPECT_TRUE(idle[i].is_dropped(60s)) << i;
    late[i].greet_and_send(a_message);
    EXPECT_EQ(bound.received(), "one") << i;
  }
  member.send(another);
  EXPECT_EQ(bound.received(), "other");
  EXPECT_EQ(bound.dropped_otherwise, 0);
}
INSTANTIATE_TEST_SUITE_P(Kinds, ZmqWithoutDescriptors, testing::Values("ipc", "tcp"));

TEST(ZmqConnectionGuard, APathThatIsBoundAgainIsGuardedByTheSecondWhateverBecomesOfTheFirst) {
  const test::temporary_folder folder;
  const std::string path = "ipc://" + folder.path() + "/socket";
  auto first = std::make_unique<guarded_socket>(connection_guard::limits{.most_connections = 1}, path);
  const stranger of_first(path);
  ASSERT_TRUE(of_first.is_greeted());
  guarded_socket second({.most_connections = 1}, path);
  second.reason = "too many connections are open";
  const stranger of_second(path);
  EXPECT_TRUE(of_second.is_greeted()) << "it is not counted with those of the first";
  first.reset();
  EXPECT_TRUE(stranger(path).is_dropped(60s));
  EXPECT_TRUE(comes_true([&] { return second.dropped == 1; }));
  EXPECT_EQ(second.dropped_otherwise, 0);
}

TEST(ZmqConnectionGuard, SocketsOfTheProgramItselfHaveNoLimits) {
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
