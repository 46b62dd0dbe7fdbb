// SPDX-License-Identifier: BSD-3-Clause
//
// Encrypted tcp: members of the job talk, and nobody else is heard, however far he gets in the handshake.
#include "net/zmq_curve.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "net/frame_parts.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/relay.hpp"
#include "test/support/temporary_folder.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using test::answering;
using test::at_most;
using test::dial;
using test::echo;
using test::filled_buffer;
using test::frame_text;
using test::is_filled_buffer;
using test::relay;
using test::saying;

constexpr auto refused_after = 300ms;        // a member is answered sooner
constexpr std::size_t beginning = 64 + 202;  // of a connection: a greeting, and HELLO with its header
constexpr curve_secret own_key{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr curve_secret other_key{9, 9, 9};

/// What a port says within this time.
std::string asked(transport& net, const std::string& address, std::chrono::milliseconds within = at_most) {
  const auto client = net.open();
  client->send(client->connect(address), saying("a request"));
  incoming in;
  return client->receive(in, within) ? frame_text(in) : std::string("nothing");
}

class ZmqCurve : public testing::Test {
 protected:
  ZmqCurve() {
    auto p = job.open();
    address = p->bind("tcp://127.0.0.1:*");
    server.emplace(std::move(p), [this](port& to, incoming& in) {
      ++requests;
      echo(to, in);
    });
  }

  std::atomic<int> dropped{0};
  std::atomic<int> requests{0};
  zmq_transport job{{},
                    [this](std::string_view why) {
                      EXPECT_NE(why.find("as a member of the job does"), std::string_view::npos) << why;
                      ++dropped;
                    },
                    own_key};
  std::string address;
  std::optional<answering> server;
};

TEST_F(ZmqCurve, MembersTalkInAndBeyondTheProcessWhateverTheSize) {
  zmq_transport member({}, {}, own_key);
  EXPECT_EQ(asked(member, address), "a request");
  EXPECT_EQ(asked(job, address), "a request");
  const auto client = member.open();
  const int channel = client->connect(address);
  for (const std::size_t size : {1UL, 255UL, 8192UL, 3'000'001UL}) {
    client->send(channel, {.head = bytes_of("large"), .tail = filled_buffer(size, 7)});
    incoming in;
    ASSERT_TRUE(client->receive(in, at_most));
    EXPECT_TRUE(is_filled_buffer(in.tail, size, 7));
  }
  EXPECT_EQ(dropped, 0);
}

TEST_F(ZmqCurve, PortsThatShareAnAddressAreEncryptedToo) {
  auto group = job.open_group("tcp://127.0.0.1:*", 2);
  zmq_transport member({}, {}, own_key);
  zmq_transport plain({}, {}, std::nullopt);
  const answering first(std::move(group.ports[0]), echo);
  const answering second(std::move(group.ports[1]), echo);
  for (const auto& to : group.addresses) {
    EXPECT_EQ(asked(member, to), "a request");
    EXPECT_EQ(asked(plain, to, refused_after), "nothing");
  }
}

TEST_F(ZmqCurve, TheLargestFrameOfAJobIsAsLargeAsWithoutEncryption) {
  zmq_transport small({.max_message_bytes = 100'000}, {}, own_key);
  auto p = small.open();
  const auto at = p->bind("tcp://127.0.0.1:*");
  const answering small_server(std::move(p), echo);
  const auto client = small.open();
  const std::string largest(100'000, 'x');
  const int channel = client->connect(at);
  client->send(channel, saying(largest));
  incoming in;
  ASSERT_TRUE(client->receive(in, at_most));
  EXPECT_EQ(frame_text(in), largest);
  EXPECT_THROW(client->send(channel, saying(largest + 'x')), network_error);
}

TEST_F(ZmqCurve, AFrameThatIsNotCutEndsTheConnectionOfAMemberToo) {
  const zmq_curve keys(own_key);
  zmq::context_t context;
  const auto answered = [&](std::size_t bytes) {
    zmq::socket_t member(context, zmq::socket_type::req);
    keys.secure(member, zmq_curve::side::connecting);
    member.set(zmq::sockopt::linger, 0);
    member.set(zmq::sockopt::rcvtimeo, bytes > most_part_bytes ? 1000 : 10'000);
    member.connect(address);
    member.send(zmq::message_t(bytes), zmq::send_flags::none);
    zmq::message_t part;
    return member.recv(part).has_value();
  };
  EXPECT_TRUE(answered(part_bytes));
  EXPECT_FALSE(answered(most_part_bytes + 1));
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(asked(job, address), "a request");
}

TEST_F(ZmqCurve, WhoDoesNotEncryptIsNeitherHeardNorAnswered) {
  zmq_transport plain({}, {}, std::nullopt);
  EXPECT_EQ(asked(plain, address, refused_after), "nothing");
  EXPECT_EQ(requests, 0);
  EXPECT_EQ(asked(job, address), "a request");
}

TEST_F(ZmqCurve, AMemberDoesNotTalkToAPortThatDoesNotEncrypt) {
  zmq_transport plain({}, {}, std::nullopt);
  auto p = plain.open();
  const auto at = p->bind("tcp://127.0.0.1:*");
  std::atomic<int> heard{0};
  const answering spy(std::move(p), [&](port&, incoming&) { ++heard; });
  EXPECT_EQ(asked(job, at, refused_after), "nothing");
  EXPECT_EQ(heard, 0);
}

TEST_F(ZmqCurve, AnotherJobIsNeitherHeardNorAnswered) {
  zmq_transport other({}, {}, other_key);
  EXPECT_EQ(asked(other, address, refused_after), "nothing");
  EXPECT_EQ(requests, 0);
  EXPECT_EQ(asked(job, address), "a request");
}

/// A socket of the program itself that connects with a pair of its own.
std::string asked_with(zmq::context_t& context, const curve_secret& server, const std::string& address) {
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  zmq_curve(server).secure(socket, zmq_curve::side::connecting);  // the server's public key is right
  std::array<char, 41> open{};
  std::array<char, 41> secret{};
  zmq_curve_keypair(open.data(), secret.data());
  socket.set(zmq::sockopt::curve_publickey, open.data());
  socket.set(zmq::sockopt::curve_secretkey, secret.data());
  socket.set(zmq::sockopt::rcvtimeo, static_cast<int>(refused_after.count()));
  socket.connect(address);
  socket.send(zmq::message_t(), zmq::send_flags::sndmore);
  socket.send(zmq::buffer("a request", 9), zmq::send_flags::none);
  zmq::message_t part;
  return socket.recv(part) ? "something" : "nothing";
}

TEST_F(ZmqCurve, ThePublicKeyAloneAdmitsNobody) {
  zmq::context_t context;
  EXPECT_EQ(asked_with(context, own_key, address), "nothing");
  EXPECT_EQ(requests, 0);
}

TEST(ZmqCurveSocket, WithoutAHandlerNobodyIsAdmitted) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::router);
  socket.set(zmq::sockopt::linger, 0);
  zmq_curve(own_key).secure(socket, zmq_curve::side::bound);
  socket.set(zmq::sockopt::rcvtimeo, static_cast<int>(refused_after.count()));
  socket.bind("tcp://127.0.0.1:*");
  zmq_transport member({}, {}, own_key);
  EXPECT_EQ(asked(member, socket.get(zmq::sockopt::last_endpoint), refused_after), "nothing");
  zmq::message_t part;
  EXPECT_FALSE(socket.recv(part));
}

TEST_F(ZmqCurve, APortBoundToBothHasPlainIpcAndEncryptedTcp) {
  const test::temporary_folder folder;
  zmq_transport plain({}, {}, std::nullopt);
  auto p = job.open();
  const auto ipc = p->bind("ipc://" + folder.path() + "/a");
  const auto tcp = p->bind("tcp://127.0.0.1:*");
  EXPECT_THROW(p->bind("ipc://" + folder.path() + "/b"), network_error);
  const answering both(std::move(p), echo);
  EXPECT_EQ(asked(plain, ipc), "a request");
  EXPECT_EQ(asked(job, ipc), "a request");
  EXPECT_EQ(asked(job, tcp), "a request");
  EXPECT_EQ(asked(plain, tcp, refused_after), "nothing");
}

TEST_F(ZmqCurve, NothingOnTheWireCanBeReadAndNothingRecordedCanBeSentAgain) {
  std::string recorded;
  {
    relay wire(address);
    EXPECT_EQ(asked(job, wire.address()), "a request");
    recorded = wire.sent();
  }
  EXPECT_EQ(requests, 1);
  EXPECT_GT(recorded.size(), beginning);
  EXPECT_EQ(recorded.find("a request"), std::string::npos);
  EXPECT_EQ(recorded.find(std::string(reinterpret_cast<const char*>(own_key.data()), 8)), std::string::npos);
  for (const std::size_t cut : {recorded.size(), beginning}) {
    const int again = dial(address);
    EXPECT_EQ(send(again, recorded.data(), cut, MSG_NOSIGNAL), static_cast<ssize_t>(cut));
    const std::string rest = recorded.substr(cut);
    std::this_thread::sleep_for(50ms);
    if (!rest.empty()) send(again, rest.data(), rest.size(), MSG_NOSIGNAL);
    pollfd closed{again, POLLIN, 0};
    char bytes[4096];
    while (poll(&closed, 1, 10'000) == 1 && recv(again, bytes, sizeof bytes, 0) > 0) {
    }
    close(again);
  }
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(asked(job, address), "a request");
}

TEST_F(ZmqCurve, WhatWasChangedOnTheWayIsNotTaken) {
  std::size_t handshake = 0;
  std::size_t all = 0;
  {
    const relay wire(address);
    const auto client = job.open();
    const int channel = client->connect(wire.address());
    client->send(channel, saying("a request"));
    incoming in;
    ASSERT_TRUE(client->receive(in, at_most));
    all = wire.sent().size();
    client->send(channel, saying("a request"));
    ASSERT_TRUE(client->receive(in, at_most));
    handshake = 2 * all - wire.sent().size();  // messages of one length follow it
  }
  const int before = requests;
  // In the greeting, HELLO, INITIATE and the message: its header, number, and box.
  for (const std::size_t changed :
       {std::size_t{14}, beginning - 1, beginning + 30, handshake - 1, handshake + 20, all - 1}) {
    const relay wire(address, ~std::size_t{0}, {.from_client = changed});
    const auto client = job.open();
    client->send(client->connect(wire.address()), saying("a request"));
    incoming in;
    // A connection that fails before its end is made again, and then the request arrives as it was sent.
    if (client->receive(in, refused_after)) {
      EXPECT_EQ(frame_text(in), "a request") << changed;
    }
    if (changed >= handshake) {
      EXPECT_EQ(requests, before) << changed;
    } else {
      requests = before;
    }
  }
  EXPECT_EQ(asked(job, address), "a request");
}

TEST_F(ZmqCurve, AHandshakeThatStopsHalfWayIsDroppedInTime) {
  std::string recorded;
  {
    const relay wire(address);
    EXPECT_EQ(asked(job, wire.address()), "a request");
    recorded = wire.sent();
  }
  ASSERT_GT(recorded.size(), beginning + 100);
  const auto begin = steady_clock::now();
  std::vector<int> all;
  for (const std::size_t sent : {0UL, 1UL, 63UL, 64UL, 65UL, beginning, beginning + 1, beginning + 100}) {
    all.push_back(dial(address));
    EXPECT_EQ(send(all.back(), recorded.data(), sent, MSG_NOSIGNAL), static_cast<ssize_t>(sent));
  }
  for (const int half : all) {
    pollfd closed{half, POLLIN, 0};
    char bytes[4096];
    ssize_t n = 1;
    while (n > 0 && poll(&closed, 1, 15'000) == 1) n = recv(half, bytes, sizeof bytes, 0);
    EXPECT_LE(n, 0);
    EXPECT_GT(steady_clock::now() - begin, 1s);
    EXPECT_LT(steady_clock::now() - begin, 10s);  // 2 s, on an idle machine
    close(half);
  }
  EXPECT_EQ(asked(job, address), "a request");
}

/// The beginning of a member's connection, as somebody on the way sees it.
std::string greeting_and_hello(transport& job, const std::string& address) {
  const relay wire(address, beginning);
  asked(job, wire.address(), refused_after);
  return wire.sent().substr(0, beginning);
}

TEST_F(ZmqCurve, AHandshakeOfABytePerTurnHasNoMoreTimeThanAnother) {
  const auto hello = greeting_and_hello(job, address);
  ASSERT_EQ(hello.size(), beginning);
  const int slow = dial(address);
  const auto begin = steady_clock::now();
  for (std::size_t i = 0; steady_clock::now() - begin < 20s; i = (i + 1) % hello.size()) {
    if (send(slow, &hello[i], 1, MSG_NOSIGNAL) != 1) break;
    std::this_thread::sleep_for(20ms);
  }
  close(slow);
  const auto took = steady_clock::now() - begin;
  EXPECT_GT(took, 1s);
  EXPECT_LT(took, 15s);  // 2 s, on an idle machine
  EXPECT_EQ(asked(job, address), "a request");
}

TEST_F(ZmqCurve, NothingButSmallCommandsIsTakenBeforeAdmission) {
  const auto hello = greeting_and_hello(job, address);
  ASSERT_EQ(hello.size(), beginning);
  const std::string announced("\x02\0\0\0\0\0\x10\0\0", 9);  // a part of 1 MiB
  const std::string endless("\x01\0", 2);                    // an empty part, and more of them
  const std::string command("\x06\0\0\0\0\0\0\x10\x01", 9);  // a command of 4,097 bytes
  int expected = 0;
  for (const auto& next : {announced, endless, command}) {
    for (const std::size_t begin : {std::size_t{64}, hello.size()}) {
      const int stranger = dial(address);
      const std::string bytes = hello.substr(0, begin);
      send(stranger, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      char greeting[64 + 170];  // its, and WELCOME
      std::size_t got = 0;
      while (got < (begin == 64 ? 64U : sizeof greeting)) {
        const auto n = recv(stranger, greeting + got, sizeof greeting - got, 0);
        ASSERT_GT(n, 0);
        got += static_cast<std::size_t>(n);
      }
      send(stranger, next.data(), next.size(), MSG_NOSIGNAL);
      pollfd closed{stranger, POLLIN, 0};
      EXPECT_EQ(poll(&closed, 1, 1500), 1) << "before its handshake's time is over";
      EXPECT_LE(recv(stranger, greeting, sizeof greeting, 0), 0);
      close(stranger);
      for (const auto end = steady_clock::now() + 10s; dropped == expected && steady_clock::now() < end;)
        std::this_thread::sleep_for(1ms);
      EXPECT_EQ(dropped, ++expected);
    }
  }
  EXPECT_EQ(asked(job, address), "a request");
}

TEST_F(ZmqCurve, MembersThatHaveNotSpokenYetDoNotGiveWayToStrangers) {
  const auto quiet = job.open();
  const int channel = quiet->connect(address);
  quiet->send(channel, saying("hello"));
  incoming in;
  ASSERT_TRUE(quiet->receive(in, at_most));
  std::vector<int> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(dial(address));
  EXPECT_EQ(asked(job, address), "a request");
  quiet->send(channel, saying("still there"));
  ASSERT_TRUE(quiet->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "still there");
  for (const int fd : strangers) close(fd);
}

TEST(JobKeys, AreReadFromAFileOfTheirOwnerAlone) {
  const test::temporary_folder folder;
  const auto path = (folder / "job.key").string();
  const auto with = [&](const std::string& text, mode_t mode = 0600) {
    unlink(path.c_str());
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return read_job_keys(path);
  };
  const std::string digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  const auto found = with(digits);
  ASSERT_TRUE(found.secret);
  EXPECT_EQ(found.key, 0U);
  for (std::size_t i = 0; i < found.secret->size(); ++i) EXPECT_EQ((*found.secret)[i], i);
  EXPECT_EQ(with("0123456789abcdef").key, 0x0123456789abcdefU);
  EXPECT_FALSE(with("0123456789abcdef").secret);
  for (const auto& wrong : {std::string(), digits.substr(1), digits + "0", digits + "\n", std::string(64, 'g'),
                            digits.substr(0, 63) + " ", std::string("0123456789abcde")})
    EXPECT_THROW(with(wrong), usage_error) << wrong;
  for (const mode_t mode : {0640, 0604, 0660, 0601}) EXPECT_THROW(with(digits, mode), usage_error) << mode;
  unlink(path.c_str());
  EXPECT_EQ(symlink("/dev/null", path.c_str()), 0);
  EXPECT_THROW((void)read_job_keys(path), usage_error);
}

TEST(JobKeys, AVariableDoesNotReplaceTheFileOfAnEncryptedJob) {
  const test::temporary_folder folder;
  const auto path = (folder / "job.key").string();
  const auto taken_from = [&](const std::string& digits, const char* variable) {
    unlink(path.c_str());
    std::ofstream(path) << digits;
    chmod(path.c_str(), 0600);
    setenv("PARACEL_JOB_KEY_FILE", path.c_str(), 1);
    if (variable != nullptr) setenv("PARACEL_JOB_KEY", variable, 1);
    else unsetenv("PARACEL_JOB_KEY");
    take_job_key();
  };
  const std::string digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  for (const char* variable : {"0123456789abcdef", "no key", ""}) {
    taken_from(digits, variable);
    EXPECT_TRUE(job_curve_secret()) << variable;
    EXPECT_EQ(job_key(), 0U) << variable;
  }
  chmod(path.c_str(), 0644);
  EXPECT_THROW(take_job_key(), usage_error) << "the variable is no way around the file's permissions";
  unsetenv("PARACEL_JOB_KEY_FILE");
  for (const auto& wrong : {digits, std::string()}) {
    setenv("PARACEL_JOB_KEY", wrong.c_str(), 1);
    EXPECT_THROW(take_job_key(), usage_error) << wrong;
  }
  taken_from("0000000000000000", nullptr);  // as before, for the tests that follow
  EXPECT_FALSE(job_curve_secret());
  unsetenv("PARACEL_JOB_KEY_FILE");
  setenv("PARACEL_JOB_KEY", "0123456789abcdef", 1);
  take_job_key();
  EXPECT_EQ(job_key(), 0x0123456789abcdefU);
  unsetenv("PARACEL_JOB_KEY");
  set_job_key(0);
}

}  // namespace
}  // namespace paracel::net
