// SPDX-License-Identifier: BSD-3-Clause
//
// The two ends of a direct connection between workers, over a pair of sockets.
#include "net/direct_link.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "net/zmq_transport.hpp"
#include "test/support/filled_bytes.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::direct_link;
using net::link_box;
using net::owned_fd;
using std::chrono::steady_clock;
using test::filled;

constexpr auto at_most = 20s;  // only failures take this long

std::pair<owned_fd, owned_fd> connected_pair() {
  std::array<int, 2> both{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
  return {owned_fd(both[0]), owned_fd(both[1])};
}

std::optional<direct_link::boxes> boxes(bool encrypted, bool of_offering_side) {
  constexpr link_box::key key{1, 2, 3};
  if (!encrypted) return std::nullopt;
  return direct_link::boxes{.out = {key, of_offering_side}, .in = {key, !of_offering_side}};
}

class DirectLink : public testing::TestWithParam<bool> {
 protected:
  /// libsodium is found once ZeroMQ is there.
  net::zmq_transport zmq_{{}, {}, std::nullopt};
};

TEST_P(DirectLink, DeliversMessagesOfAllSizesInOrder) {
  auto [one, other] = connected_pair();
  direct_link a(std::move(one), boxes(GetParam(), true), 8U << 20U);
  direct_link b(std::move(other), boxes(GetParam(), false), 8U << 20U);
  const std::vector<std::size_t> sizes{0,      1,       39,      40,        41,        65'495, 65'496,
                                       65'497, 65'536,  131'072, 16'384,    3,         0,      5'000'000,
                                       7,      262'144, 0,       8U << 20U, 2U << 20U, 100,    16'383};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    a.send({.received = 5, .number = i + 1, .communicator = 9, .tag = -3, .size = sizes[i]},
           shared_buffer::holding(filled(sizes[i], static_cast<unsigned>(i))));
  EXPECT_TRUE(a.has_queued());
  std::uint64_t last = 0;
  for (const auto end = steady_clock::now() + at_most; last < sizes.size() && steady_clock::now() < end;) {
    a.push();
    b.receive([&](const net::link_record& r, byte_vector body) {
      EXPECT_EQ(r.number, ++last);
      EXPECT_EQ(r.received, 5U);
      EXPECT_EQ(r.communicator, 9U);
      EXPECT_EQ(r.tag, -3);
      EXPECT_EQ(body, filled(sizes[last - 1], static_cast<unsigned>(last - 1)));
    });
  }
  EXPECT_EQ(last, sizes.size());
  EXPECT_FALSE(a.has_queued());
  EXPECT_TRUE(a.has_arrived());
  EXPECT_FALSE(b.is_broken());
}

TEST_P(DirectLink, AMessageOverTheLimitEndsIt) {
  auto [one, other] = connected_pair();
  direct_link a(std::move(one), boxes(GetParam(), true), 2000);
  direct_link b(std::move(other), boxes(GetParam(), false), 1000);
  a.send({.number = 1, .size = 1001}, shared_buffer::holding(filled(1001, 0)));
  EXPECT_TRUE(b.receive([](const net::link_record&, const byte_vector&) { ADD_FAILURE(); }));
  EXPECT_TRUE(b.is_broken());
}

TEST_P(DirectLink, TheCourierSendsWhatTheSocketDidNotTake) {
  auto [one, other] = connected_pair();
  const auto a = std::make_shared<direct_link>(std::move(one), boxes(GetParam(), true), 8U << 20U);
  direct_link b(std::move(other), boxes(GetParam(), false), 8U << 20U);
  net::courier courier;
  a->send({.number = 1, .size = 5'000'000}, shared_buffer::holding(filled(5'000'000, 1)));
  courier.take(a);
  byte_vector got;
  for (const auto end = steady_clock::now() + at_most; got.empty() && steady_clock::now() < end;)
    b.receive([&](const net::link_record&, byte_vector body) { got = std::move(body); });
  EXPECT_EQ(got, filled(5'000'000, 1));
}

/// The other side is gone, and this one notices by sending: what had arrived before is not lost.
TEST_P(DirectLink, WhatArrivedBeforeItBrokeIsReceived) {
  constexpr std::size_t each = 60'000;
  constexpr std::uint64_t messages = 5;  // more than is read at once
  auto [one, other] = connected_pair();
  constexpr int room = 2 * each * messages;
  ASSERT_EQ(::setsockopt(one.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  auto a = std::make_unique<direct_link>(std::move(one), boxes(GetParam(), true), each);
  direct_link b(std::move(other), boxes(GetParam(), false), each);
  for (std::uint64_t i = 1; i <= messages; ++i)
    a->send({.number = i, .size = each}, shared_buffer::holding(filled(each, static_cast<unsigned>(i))));
  ASSERT_FALSE(a->has_queued());
  a.reset();
  std::uint64_t last = 0;
  while (!b.has_ended()) {
    EXPECT_TRUE(b.receive([&](const net::link_record& r, const byte_vector& body) {
      EXPECT_EQ(r.number, ++last);
      EXPECT_EQ(body, filled(each, static_cast<unsigned>(last)));
      b.send({.received = last}, {});
      EXPECT_TRUE(b.is_broken());
    }));
  }
  EXPECT_EQ(last, messages);
}

/// The copy has the key, and the number of the next box.
TEST_P(DirectLink, ACopyInAForkedProcessSaysAndHearsNothing) {
  auto [one, other] = connected_pair();
  direct_link a(std::move(one), boxes(GetParam(), true), 1000);
  direct_link b(std::move(other), boxes(GetParam(), false), 1000);
  b.send({.number = 1, .size = 10}, shared_buffer::holding(filled(10, 1)));
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    a.send({.number = 1, .size = 10}, shared_buffer::holding(byte_vector(10)));
    bool heard = false;
    (void)a.receive([&](const net::link_record&, const byte_vector&) { heard = true; });
    a.close();
    ::_exit(a.is_broken() && !heard ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  int got = 0;
  EXPECT_FALSE(b.receive([&](const net::link_record&, const byte_vector&) { ++got; }));
  a.send({.number = 1, .size = 10}, shared_buffer::holding(filled(10, 2)));
  for (auto* const link : {&a, &b}) {
    EXPECT_TRUE(link->receive([&](const net::link_record&, const byte_vector& body) {
      ++got;
      EXPECT_EQ(body, filled(10, link == &a ? 1 : 2));
    }));
  }
  EXPECT_EQ(got, 2);
}

INSTANTIATE_TEST_SUITE_P(InClearAndEncrypted, DirectLink, testing::Bool());

/// What the attempt makes of three boxes reaches the receiver. Returns: the number of messages that it accepts.
int accepted(const std::function<void(std::vector<std::vector<std::byte>>&)>& attempt) {
  auto [a1, a2] = connected_pair();
  auto [b1, b2] = connected_pair();
  direct_link a(std::move(a1), boxes(true, true), 1000);
  direct_link b(std::move(b1), boxes(true, false), 1000);
  std::vector<std::vector<std::byte>> sent;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    a.send({.number = i, .size = 100}, shared_buffer::holding(byte_vector(100, std::byte{'x'})));
    auto& box = sent.emplace_back(1000);
    const auto n = ::recv(a2.get(), box.data(), box.size(), 0);
    EXPECT_GT(n, 0);
    box.resize(static_cast<std::size_t>(n));
    // None of it is readable.
    const std::array<std::byte, 4> run{std::byte{'x'}, std::byte{'x'}, std::byte{'x'}, std::byte{'x'}};
    EXPECT_EQ(std::search(box.begin(), box.end(), run.begin(), run.end()), box.end());
  }
  attempt(sent);
  int got = 0;
  for (const auto& box : sent) {
    EXPECT_EQ(::send(b2.get(), box.data(), box.size(), 0), static_cast<ssize_t>(box.size()));
    b.receive(
        [&](const net::link_record& r, const byte_vector&) { EXPECT_EQ(r.number, static_cast<unsigned>(++got)); });
  }
  EXPECT_EQ(b.is_broken(), got < 3);
  return got;
}

TEST(EncryptedLink, WhatIsChangedLostRepeatedOrSwappedEndsIt) {
  const net::zmq_transport zmq({}, {}, std::nullopt);
  ASSERT_TRUE(link_box::is_available());
  EXPECT_EQ(accepted([](auto&) {}), 3);
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(accepted([&](auto& sent) {
                auto& box = sent[1];
                box[4 + random() % (box.size() - 4)] ^= std::byte{static_cast<std::uint8_t>(1U << random() % 8)};
              }),
              1);
  }
  EXPECT_EQ(accepted([](auto& sent) { std::swap(sent[0], sent[1]); }), 0);
  EXPECT_EQ(accepted([](auto& sent) { sent[1] = sent[0]; }), 1);
  EXPECT_EQ(accepted([](auto& sent) { sent[1] = sent[2]; }), 1);
  EXPECT_EQ(accepted([](auto& sent) { sent[0].assign(4, std::byte{0xff}); }), 0);
  EXPECT_EQ(accepted([](auto& sent) { sent[0].assign(20, std::byte{0}); }), 0);
}

TEST(EncryptedLink, WhatOneSideSentCannotBeSentBackToIt) {
  const net::zmq_transport zmq({}, {}, std::nullopt);
  auto [one, other] = connected_pair();
  direct_link a(std::move(one), boxes(true, true), 1000);
  a.send({.number = 1, .size = 10}, shared_buffer::holding(byte_vector(10)));
  std::array<std::byte, 1000> box;
  const auto n = ::recv(other.get(), box.data(), box.size(), 0);
  ASSERT_GT(n, 0);
  ASSERT_EQ(::send(other.get(), box.data(), static_cast<std::size_t>(n), 0), n);
  EXPECT_TRUE(a.receive([](const net::link_record&, const byte_vector&) { ADD_FAILURE(); }));
  EXPECT_TRUE(a.is_broken());
}

}  // namespace
}  // namespace paracel
