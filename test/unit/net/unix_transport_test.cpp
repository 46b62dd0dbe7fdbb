// SPDX-License-Identifier: BSD-3-Clause
//
// What only the transport over Unix sockets does; transport_test.cpp has what it shares with the others.
#include "net/unix_transport.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "net/zmtp_inbox.hpp"
#include "test/support/small_files.hpp"
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
using test::unix_setting;

std::string header(unsigned flags, std::size_t size) {
  std::string bytes(1, static_cast<char>(flags | 2U));
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> static_cast<unsigned>(shift));
  return bytes;
}
std::string part(unsigned flags, std::string_view content) { return header(flags, content.size()).append(content); }

/// A socket that says whatever a test wants.
class stranger {
 public:
  explicit stranger(const std::string& address) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const auto path = address.substr(6);
    std::memcpy(to.sun_path, path.data(), path.size());
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  ~stranger() { ::close(fd_); }
  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;
  void say(std::string_view bytes) const { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// With a file beside the bytes.
  void pass(std::string_view bytes, int file) const {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> beside{};
    msghdr m{.msg_name = nullptr,
             .msg_namelen = 0,
             .msg_iov = &part,
             .msg_iovlen = 1,
             .msg_control = beside.data(),
             .msg_controllen = beside.size(),
             .msg_flags = 0};
    auto* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &file, sizeof file);
    ASSERT_EQ(::sendmsg(fd_, &m, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// What has arrived once it ends in `last`, and the file that came with it.
  std::pair<std::string, owned_fd> hear(std::string_view last) const {
    std::pair<std::string, owned_fd> heard;
    const timeval t{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    std::array<char, 4096> in{};
    while (!heard.first.ends_with(last)) {
      iovec part{in.data(), in.size()};
      alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> beside{};
      msghdr m{.msg_name = nullptr,
               .msg_namelen = 0,
               .msg_iov = &part,
               .msg_iovlen = 1,
               .msg_control = beside.data(),
               .msg_controllen = beside.size(),
               .msg_flags = 0};
      const auto n = ::recvmsg(fd_, &m, 0);
      if (n <= 0) break;
      heard.first.append(in.data(), static_cast<std::size_t>(n));
      if (const auto* c = CMSG_FIRSTHDR(&m); c != nullptr && c->cmsg_type == SCM_RIGHTS) {
        int file = -1;
        std::memcpy(&file, CMSG_DATA(c), sizeof file);
        heard.second = owned_fd(file);
      }
    }
    return heard;
  }
  /// Whether the other side closes the connection.
  [[nodiscard]] bool is_closed() const {
    std::array<char, 4096> in{};
    const timeval t{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    ssize_t n = 0;
    while ((n = ::recv(fd_, in.data(), in.size(), 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  int fd_;
};

std::string number(std::uint64_t n) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> static_cast<unsigned>(shift));
  return bytes;
}
/// A frame that lies in the ring.
std::string block(unsigned flags, std::uint64_t size, std::uint64_t offset) {
  return std::string(1, static_cast<char>(flags | 2U | 8U)) + number(size) + number(offset);
}

/// How many mappings of rings this process has: one for each end.
std::size_t ring_ends() {
  std::ifstream maps("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("memfd:paracel_ring") != std::string::npos ? 1U : 0U;
  return n;
}

/// A conversation with a large value each way, between a client and a server of any kind.
void talk(transport& clients, transport& servers, const std::string& address) {
  auto p = servers.open();
  p->bind(address);
  const answering server(std::move(p), echo);
  auto client = clients.open();
  const int channel = client->connect(address);
  incoming in;
  for (unsigned i = 0; i < 20; ++i) {
    const std::size_t size = i % 3 == 0 ? 1'000'000 : 70'000 * (i % 3 - 1);
    const std::string head(i * i * 700, static_cast<char>('a' + i));
    client->send(channel, {.head = bytes_of(head), .tail = size == 0 ? shared_buffer{} : filled_buffer(size, i)});
    ASSERT_TRUE(client->receive(in, at_most)) << i;
    EXPECT_EQ(frame_text(in), head);
    EXPECT_TRUE(is_filled_buffer(in.tail, size, i)) << i;
  }
}

TEST(UnixTransport, TalksToZeroMQInBothDirections) {
  unix_setting s;
  zmq_transport zmq;
  talk(s.net, s.net, s.named("unix_to_unix"));
  talk(s.net, zmq, s.named("unix_to_zmq"));
  talk(zmq, s.net, s.named("zmq_to_unix"));
  EXPECT_EQ(ring_ends(), 0U);
}

TEST(UnixTransport, APlainReqSocketIsAClient) {
  unix_setting s;
  auto p = s.net.open();
  const auto address = p->bind(s.named("req"));
  const answering server(std::move(p), echo);
  zmq::context_t context;
  zmq::socket_t req(context, zmq::socket_type::req);
  req.set(zmq::sockopt::linger, 0);
  req.set(zmq::sockopt::rcvtimeo, 10'000);
  req.set(zmq::sockopt::heartbeat_ivl, 20);  // pings, which are answered while nothing else is said
  req.set(zmq::sockopt::heartbeat_timeout, 2000);
  req.connect(address);
  for (const std::string word : {"first", "second", "third"}) {
    req.send(zmq::buffer(word), zmq::send_flags::none);
    zmq::message_t answer;
    ASSERT_TRUE(req.recv(answer));
    EXPECT_EQ(answer.to_string(), word);
    std::this_thread::sleep_for(milliseconds(60));
  }
}

TEST(UnixTransport, WhatBreaksTheProtocolIsDroppedAndNothingIsReservedForIt) {
  unix_setting s({.max_message_bytes = 1000});
  std::vector<std::string> said;
  unix_transport net({.max_message_bytes = 1000}, [&](std::string_view why) { said.emplace_back(why); });
  auto server = net.open();
  const auto address = server->bind(s.named("strict"));
  const std::string opening(zmtp_opening(false));
  const std::vector<std::string> bad{
      std::string(200, 'x'),                                      // no greeting
      opening.substr(0, 64) + part(0, "a message before READY"),  //
      opening + part(1, "") + header(0, std::size_t{1} << 62U),   // a frame beyond the limit
      opening + part(1, "") + part(1, "h") + header(0, 1001),     // a tail beyond it
      opening + part(1, "") + std::string(12, '\xff'),            // unknown flags
      opening + part(1, "") + part(4, "\4PING"),                  // a command inside a message
      opening + part(1, "") + part(1, "1") + part(1, "2") + part(1, "3") + part(1, "4") + part(1, "5") + part(1, "6") +
          part(1, "7") + part(0, "8"),  // nine parts
  };
  incoming in;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const stranger other(address);
    other.say(bad[i]);
    while (said.size() <= i && server->receive(in, milliseconds(200))) ADD_FAILURE() << i << frame_text(in);
    ASSERT_EQ(said.size(), i + 1);
    EXPECT_NE(said.back().find("broke the protocol, or had more than 1000 bytes"), std::string::npos) << said.back();
    EXPECT_TRUE(other.is_closed()) << i;
  }
  // A malformed envelope costs its message only; a good one arrives byte by byte, too.
  const stranger odd(address);
  const auto good = opening + part(0, "no envelope") + part(1, "lane") + part(0, "x") + part(1, "") + part(1, "f") +
                    part(1, "t") + part(0, "one too many") + part(1, "") + part(1, "good") + part(0, "tail");
  for (std::size_t i = 0; i < good.size(); ++i) {
    odd.say(std::string_view(good).substr(i, 1));
    if (i + 1 == good.size()) break;
    ASSERT_FALSE(server->receive(in, milliseconds(0))) << i;
  }
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "good");
  EXPECT_EQ(text_of(in.tail.bytes()), "tail");
}

TEST(UnixTransport, AnAddressIsAPathThatFits) {
  unix_setting s;
  auto p = s.net.open();
  EXPECT_THROW(p->bind("tcp://127.0.0.1:*"), network_error);
  EXPECT_THROW(p->connect("tcp://127.0.0.1:1"), network_error);
  EXPECT_THROW(p->bind("ipc://"), network_error);
  EXPECT_THROW(p->bind("ipc:///tmp/" + std::string(108, 'x')), network_error);
  EXPECT_THROW(s.net.open_group(s.named("lanes"), 2), network_error);
}

TEST(UnixTransport, ASocketLeftByAProcessThatWasKilledIsReplaced) {
  unix_setting s;
  const auto address = s.named("left");
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un here{};
    here.sun_family = AF_UNIX;
    const auto path = address.substr(6);
    std::memcpy(here.sun_path, path.data(), path.size());
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    ::close(fd);
  }
  talk(s.net, s.net, address);
}

/// Large frames each way, until both directions have a ring: there is none yet while others wait for the socket.
void make_rings(port& client, int channel, port& server) {
  incoming in;
  for (unsigned i = 0; i < 3 || (i < 100 && ring_ends() != 4); ++i) {
    client.send(channel, {.head = bytes_of("large"), .tail = filled_buffer(least_ring_frame, i)});
    ASSERT_TRUE(server.receive(in, at_most));
    server.reply(in.from, {.head = bytes_of("large"), .tail = in.tail});
    ASSERT_TRUE(client.receive(in, at_most));
    ASSERT_TRUE(is_filled_buffer(in.tail, least_ring_frame, i));
  }
  ASSERT_EQ(ring_ends(), 4U);
}

TEST(UnixTransport, LargeFramesAreInARingUntilTheConnectionEnds) {
  unix_setting s;
  {
    auto server = s.net.open();
    auto client = s.net.open();
    const int channel = client->connect(server->bind(s.named("ring")));
    make_rings(*client, channel, *server);
    incoming in;
    // Both frames large, one of them, none; and gathered with small ones.
    for (const std::size_t head : {std::size_t{10}, std::size_t{70'000}, std::size_t{3'000'000}}) {
      for (const std::size_t tail : {std::size_t{0}, std::size_t{1}, std::size_t{70'000}, std::size_t{9'000'000}}) {
        const std::string text(head, 'h');
        {
          const batch_of_messages all(*client);
          client->send(channel, saying("before"));
          client->send(channel, {.head = bytes_of(text).first(5),
                                 .body = bytes_of(text).subspan(5),
                                 .tail = tail == 0 ? shared_buffer{} : filled_buffer(tail, 3)});
          client->send(channel, saying("behind"));
        }
        ASSERT_TRUE(server->receive(in, at_most));
        EXPECT_EQ(frame_text(in), "before");
        ASSERT_TRUE(server->receive(in, at_most));
        EXPECT_EQ(frame_text(in), text);
        EXPECT_TRUE(is_filled_buffer(in.tail, tail, 3)) << head << " " << tail;
        ASSERT_TRUE(server->receive(in, at_most));
        EXPECT_EQ(frame_text(in), "behind");
      }
    }
    client->disconnect(channel);
    EXPECT_FALSE(client->receive(in, milliseconds(0)));
    EXPECT_FALSE(server->receive(in, milliseconds(100)));
    EXPECT_FALSE(server->receive(in, milliseconds(0)));
    EXPECT_EQ(ring_ends(), 0U);
  }
}

TEST(UnixTransport, TailsOfRepliesAreLentToWhoAcceptsIt) {
  unix_setting s;
  auto server = s.net.open();
  auto client = s.net.open();
  client->accept_lent_tails();
  server->accept_lent_tails();  // it has requests only
  const int channel = client->connect(server->bind(s.named("lends")));
  make_rings(*client, channel, *server);
  incoming in;
  std::vector<shared_buffer> held;
  const auto ask = [&](unsigned i) {
    client->send(channel, {.head = bytes_of("ask"), .tail = filled_buffer(100'000, i)});
    ASSERT_TRUE(server->receive(in, at_most));
    EXPECT_FALSE(in.tail_is_lent);
    server->reply(in.from, {.head = bytes_of(std::string(100'000, 'h')), .tail = filled_buffer(1'000'000, i)});
    in.tail = {};
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_EQ(frame_text(in), std::string(100'000, 'h'));
    EXPECT_TRUE(is_filled_buffer(in.tail, 1'000'000, i)) << i;
  };
  for (unsigned i = 0; i < 12; ++i) {
    ask(i);
    EXPECT_EQ(in.tail_is_lent, i < 7) << i;  // what is held leaves no room for more
    held.push_back(std::move(in.tail));
  }
  for (unsigned i = 0; i < 12; ++i) EXPECT_TRUE(is_filled_buffer(held[i], 1'000'000, i)) << i;
  held.resize(1);
  ask(12);
  EXPECT_FALSE(in.tail_is_lent);
  held.clear();
  ask(13);
  EXPECT_TRUE(in.tail_is_lent);
  client->disconnect(channel);
  const auto last = std::move(in.tail);
  EXPECT_FALSE(client->receive(in, milliseconds(0)));
  EXPECT_TRUE(is_filled_buffer(last, 1'000'000, 13));
}

TEST(UnixTransport, WithoutMemoryForARingFramesGoOverTheSocket) {
  unix_setting s;
  const test::small_files limit(1'000'000);
  talk(s.net, s.net, s.named("no_ring"));
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.named("no_ring")));
  incoming in;
  for (unsigned i = 0; i < 10; ++i) {
    client->send(channel, {.head = bytes_of("large"), .tail = filled_buffer(100'000, i)});
    ASSERT_TRUE(server->receive(in, at_most));
    EXPECT_TRUE(is_filled_buffer(in.tail, 100'000, i));
  }
  EXPECT_EQ(ring_ends(), 0U);
}

TEST(UnixTransport, ABlockThatIsNotInTheRingEndsTheConnectionOfItsSender) {
  unix_setting s;
  std::vector<std::string> said;
  unix_transport net({.max_message_bytes = 1'000'000}, [&](std::string_view why) { said.emplace_back(why); });
  auto server = net.open();
  const auto address = server->bind(s.named("blocks"));
  const std::string opening(zmtp_opening(false));
  incoming in;
  const std::vector<std::string> bad{
      part(1, "") + part(1, "h") + block(0, 0, 0),
      part(1, "") + part(1, "h") + block(0, 10, ring_capacity - 9),
      part(1, "") + part(1, "h") + block(0, 10, ~std::uint64_t{0}),
      part(1, "") + part(1, "h") + block(0, 1'000'001, 0),
      part(1, "") + part(1, "h") + block(4, 10, 0),                   // a command in the ring
      part(1, "") + std::string("\x08\x0a", 2) + std::string(30, 0),  // a short length
  };
  for (const bool has_ring : {true, false}) {
    for (const auto& b : bad) {
      said.clear();
      const stranger other(address);
      other.say(opening);
      if (has_ring) {
        other.say(zmtp_wants_ring);
        while (!server->receive(in, milliseconds(50)) && ring_ends() == 0) {
        }
        const auto [text, file] = other.hear(zmtp_has_ring);
        ASSERT_TRUE(text.ends_with(zmtp_has_ring));
        ASSERT_TRUE(ring_writer::open(owned_fd(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0))));
        // The server's file cannot be made smaller.
        EXPECT_NE(::ftruncate(file.get(), 0), 0);
        other.say(zmtp_wants_ring);  // it has one
        other.say(part(1, "") + block(1, 200, 0) + block(0, 100'000, 100));
        ASSERT_TRUE(server->receive(in, at_most));
        EXPECT_EQ(frame_text(in), std::string(200, '\0'));
        EXPECT_EQ(in.tail.size(), 100'000U);
        // Frames that just fit into the inbox's buffer, before one in the ring, or that do not.
        for (std::size_t left = 0; left < 60; left += 3) {
          const std::string text(zmtp_inbox::capacity - left, 'f');
          other.say(part(1, "") + part(1, text) +
                    (left % 2 == 0 ? block(0, 100, 64 * left) : part(0, std::string(100, 't'))));
          ASSERT_TRUE(server->receive(in, at_most)) << left;
          EXPECT_EQ(frame_text(in), text);
          EXPECT_EQ(in.tail.size(), 100U);
        }
        EXPECT_EQ(ring_ends(), 1U);
      }
      other.say(b);
      while (said.empty()) ASSERT_FALSE(server->receive(in, milliseconds(200)));
      EXPECT_NE(said.back().find("broke the protocol"), std::string::npos) << said.back();
      EXPECT_TRUE(other.is_closed());
    }
  }
  // Cut off after its length.
  {
    const stranger other(address);
    other.say(opening + std::string(zmtp_wants_ring) + part(1, "") + block(0, 100, 0).substr(0, 16));
    EXPECT_FALSE(server->receive(in, milliseconds(100)));
  }
  EXPECT_FALSE(server->receive(in, milliseconds(100)));
  EXPECT_FALSE(server->receive(in, milliseconds(0)));
  EXPECT_EQ(ring_ends(), 0U);
}

TEST(UnixTransport, WhatAStrangerPassesInsteadOfARingIsNotUsed) {
  unix_setting s;
  auto server = s.net.open();
  const auto address = server->bind(s.named("files"));
  const owned_fd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));  // its maker can make it smaller
  ASSERT_EQ(::ftruncate(loose.get(), ring_memory::file_bytes), 0);
  const owned_fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int file : {-1, loose.get(), null.get()}) {
    const stranger other(address);
    other.say(std::string(zmtp_opening(false)));
    incoming in;
    const std::string text(100'000, 'v');
    for (unsigned i = 0; i < 4; ++i) {
      other.say(part(1, "") + part(0, "ask"));
      ASSERT_TRUE(server->receive(in, at_most));
      server->reply(in.from, {.head = bytes_of("value"), .tail = shared_buffer::copy_of(bytes_of(text))});
      const auto heard = other.hear(text).first;
      EXPECT_TRUE(heard.ends_with(header(0, text.size()) + text));
      EXPECT_EQ(heard.find(zmtp_wants_ring) != std::string::npos, i == 0 || (file < 0 && i != 2)) << i;
      if (i > 0) continue;
      if (file >= 0) other.pass(zmtp_has_ring, file);
    }
    other.say(zmtp_has_ring);  // nobody has asked, or no file comes with it
    other.say(part(1, "") + part(0, "ask"));
    ASSERT_TRUE(server->receive(in, at_most));
    EXPECT_EQ(ring_ends(), 0U);
  }
}

TEST(UnixTransport, AServerThatIsKilledWhileItFillsTheRingIsReplaced) {
  unix_setting s;
  const auto address = s.named("killed");
  const auto serve = [&] {
    const pid_t child = ::fork();
    if (child != 0) return child;
    unix_transport net;
    auto p = net.open();
    p->bind(address);
    for (incoming in;;) {
      if (p->receive(in, at_most)) p->reply(in.from, {.head = in.frame, .tail = filled_buffer(1'000'000, 8)});
    }
  };
  auto client = s.net.open();
  const int channel = client->connect(address);
  incoming in;
  for (unsigned turn = 0; turn < 5; ++turn) {
    const pid_t server = serve();
    for (unsigned i = 0; i < 10; ++i) {
      client->send(channel, saying("ask"));
      ASSERT_TRUE(client->receive(in, at_most)) << turn << " " << i;
      EXPECT_TRUE(is_filled_buffer(in.tail, 1'000'000, 8));
    }
    EXPECT_EQ(ring_ends(), 1U);
    for (unsigned i = 0; i < 15; ++i) client->send(channel, saying("ask"));
    for (unsigned i = 0; i < turn; ++i) ASSERT_TRUE(client->receive(in, at_most));
    ASSERT_EQ(::kill(server, SIGKILL), 0);
    ASSERT_EQ(::waitpid(server, nullptr, 0), server);
    while (client->receive(in, milliseconds(10))) EXPECT_TRUE(is_filled_buffer(in.tail, 1'000'000, 8));
    EXPECT_FALSE(client->receive(in, milliseconds(0)));  // what the last call found broken is gone
    EXPECT_EQ(ring_ends(), 0U);
  }
}

void fill_up_with_replies(bool has_rings) {
  unix_setting s;
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.named("full")));
  if (has_rings) make_rings(*client, channel, *server);
  constexpr std::size_t size = 1'000'000;
  constexpr unsigned all = 20;
  incoming in;
  const auto begin = steady_clock::now();
  for (unsigned i = 0; i < all; ++i) {
    client->send(channel, saying("ask"));
    ASSERT_TRUE(server->receive(in, at_most));
    if (i == 0) {
      EXPECT_EQ(in.unread_bytes, 0U);
    } else if (i + 1 == all) {
      EXPECT_GT(in.unread_bytes, (all - 3) * size);
    }
    server->reply(in.from, {.head = bytes_of("answer"), .tail = filled_buffer(size, i)});
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  for (unsigned i = 0; i < all; ++i) {
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_TRUE(is_filled_buffer(in.tail, size, i)) << i;
  }
  client->send(channel, saying("ask"));
  ASSERT_TRUE(server->receive(in, at_most));
  EXPECT_EQ(in.unread_bytes, 0U);
}
TEST(UnixTransport, RepliesThatNobodyReadsAreCountedAndArriveLater) { fill_up_with_replies(false); }
TEST(UnixTransport, RepliesThatNobodyReadsFillTheRingAndThenTheQueue) { fill_up_with_replies(true); }

TEST(UnixTransport, ALargeRequestLeavesThoughItsSenderComputes) {
  unix_setting s;
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.named("computes")));
  client->send(channel, {.head = bytes_of("update"), .tail = filled_buffer(5'000'000, 3)});
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));  // the client's port is not used meanwhile
  EXPECT_TRUE(is_filled_buffer(in.tail, 5'000'000, 3));
}

TEST(UnixTransport, WhatIsSentWhileTheOtherSideAnswersTheOpeningArrives) {
  unix_setting s;
  incoming in;
  for (int turn = 0; turn < 200; ++turn) {
    auto server = s.net.open();
    auto client = s.net.open();
    const int channel = client->connect(server->bind(s.wildcard()));
    client->send(channel, saying("first"));
    const bool early = server->receive(in, milliseconds(0));  // it accepts the connection
    if (early) {
      EXPECT_EQ(frame_text(in), "first");
    }
    client->send(channel, saying("second"));
    if (!early) {
      ASSERT_TRUE(server->receive(in, at_most)) << turn;
      EXPECT_EQ(frame_text(in), "first");
    }
    ASSERT_TRUE(server->receive(in, at_most)) << turn;
    EXPECT_EQ(frame_text(in), "second");
  }
}

TEST(UnixTransport, GatheredMessagesLeaveInOrder) {
  unix_setting s;
  auto server = s.net.open();
  auto client = s.net.open();
  const int channel = client->connect(server->bind(s.named("gathers")));
  client->send(channel, saying("connect"));
  incoming in;
  ASSERT_TRUE(server->receive(in, at_most));
  {
    const batch_of_messages all(*client);
    for (unsigned i = 0; i < 100; ++i) {
      const auto text = std::to_string(i);
      client->send(channel, {.head = bytes_of(text), .tail = i == 50 ? filled_buffer(1000, i) : shared_buffer{}});
    }
  }
  for (unsigned i = 0; i < 100; ++i) {
    ASSERT_TRUE(server->receive(in, at_most));
    EXPECT_EQ(frame_text(in), std::to_string(i));
    EXPECT_EQ(in.tail.size(), i == 50 ? 1000U : 0U);
  }
}

TEST(UnixTransport, ClosingDoesNotWaitForAServerThatNeverCame) {
  const auto begin = steady_clock::now();
  {
    unix_setting s;
    auto client = s.net.open();
    client->send(client->connect(s.named("nobody")), saying("anyone?"));
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(2));
}

/// After a user function that closes all descriptors a server must end, and not wait for nothing.
TEST(UnixTransport, ADescriptorThatOthersHaveClosedEndsTheProcess) {
  unix_setting s;
  const auto port = s.net.open();
  const auto waits = [&] {
    for (int fd = STDERR_FILENO + 1; fd < 1024; ++fd) ::close(fd);
    incoming in;
    port->receive(in, milliseconds(0));
  };
  EXPECT_DEATH(waits(), "internal error");
}

}  // namespace
}  // namespace paracel::net
