// SPDX-License-Identifier: BSD-3-Clause
//
// How a direct connection begins, and who cannot begin one. The one who connects is this test, by hand.
#include "worker/job/link_handshake.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "net/direct_link.hpp"
#include "net/zmq_transport.hpp"
#include "worker/job/direct_links.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::link_box;
using net::owned_fd;
using std::chrono::steady_clock;

constexpr auto patience = 20s;  // only failures take this long

class LinkHandshake : public testing::TestWithParam<bool> {
 protected:
  /// Worker 0, which listens.
  direct_links listener_{{.host = "127.0.0.1", .encrypts = GetParam(), .rank = 0, .client = 100}};
  /// libsodium is found once ZeroMQ is there.
  net::zmq_transport zmq_{{}, {}, std::nullopt};

  link_offer offer_to(std::uint32_t rank, std::uint32_t turn = 0) {
    const auto o = link_offer::read(listener_.offer(rank, turn));
    EXPECT_TRUE(o.has_value());
    return o.value_or(link_offer{});
  }
  static byte_vector hello_for(const link_offer& o, std::uint32_t rank, std::uint32_t turn = 0) {
    link_box out(o.key, false);
    return link_hello{.rank = rank, .client = 200 + rank, .turn = turn}.bytes(o.key, GetParam() ? &out : nullptr);
  }
  static owned_fd connected_to(const link_offer& o) {
    owned_fd s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(o.port);
    EXPECT_EQ(o.host, "127.0.0.1");
    EXPECT_EQ(::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return s;
  }
  static owned_fd who_says(const link_offer& o, std::span<const std::byte> bytes) {
    auto s = connected_to(o);
    EXPECT_EQ(::send(s.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return s;
  }
  void progress() {
    (void)listener_.progress([](std::uint32_t, auto&, const net::link_record&, const byte_vector&) {
      ADD_FAILURE() << "nobody has sent a message";
    });
  }
  bool becomes_linked(std::uint32_t rank) {
    for (const auto end = steady_clock::now() + patience; steady_clock::now() < end;) {
      progress();
      if (listener_.find(rank) != nullptr) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  bool becomes_closed(const owned_fd& s) {
    for (const auto end = steady_clock::now() + patience; steady_clock::now() < end;) {
      progress();
      std::byte b;
      if (const auto n = ::recv(s.get(), &b, 1, MSG_DONTWAIT); n >= 0 || errno == ECONNRESET) return n <= 0;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
};

TEST_P(LinkHandshake, WhoHasTheOfferIsAdmitted) {
  const auto o = offer_to(3, 2);
  const auto s = who_says(o, hello_for(o, 3, 2));
  ASSERT_TRUE(becomes_linked(3));
  EXPECT_EQ(listener_.find(3)->client, 203U);
  EXPECT_EQ(listener_.find(3)->turn, 2U);
  EXPECT_TRUE(listener_.offer(3, 2).empty());
}

TEST_P(LinkHandshake, AHelloIsGoodOnceAndForItsOfferAlone) {
  const auto one = offer_to(1);
  const auto two = offer_to(2);  // so somebody still listens when the first offer has been taken
  EXPECT_NE(one.key, two.key);
  const auto said = hello_for(one, 1);
  auto pretended = said;
  pretended[0] = std::byte{2};
  EXPECT_TRUE(becomes_closed(who_says(two, pretended)));
  EXPECT_EQ(listener_.find(2), nullptr);
  const auto s = who_says(one, said);
  ASSERT_TRUE(becomes_linked(1));
  EXPECT_TRUE(becomes_closed(who_says(two, said)));
  EXPECT_EQ(listener_.find(1)->client, 201U);
  // An offer is not spent by attempts.
  const auto t = who_says(two, hello_for(two, 2));
  EXPECT_TRUE(becomes_linked(2));
}

TEST_P(LinkHandshake, NoByteOfItCanBeChanged) {
  const auto o = offer_to(1);
  const auto said = hello_for(o, 1);
  ASSERT_EQ(said.size(), link_hello::size(GetParam()));
  const auto proof =
      GetParam() ? said.size() : sizeof(std::uint32_t) + o.key.size();  // in clear the rest is not secret
  for (std::size_t i = 0; i < proof; ++i) {
    auto changed = said;
    changed[i] ^= std::byte{1};
    EXPECT_TRUE(becomes_closed(who_says(o, changed))) << i;
    EXPECT_EQ(listener_.find(1), nullptr) << i;
  }
  const auto s = who_says(o, said);
  EXPECT_TRUE(becomes_linked(1));
}

/// A box of the side that offers, or one that is not the first, is no hello.
TEST_P(LinkHandshake, ABoxOfAnotherPlaceIsNoHello) {
  if (!GetParam()) GTEST_SKIP() << "in clear there are none";
  const auto o = offer_to(1);
  const link_hello hello{.rank = 1, .client = 201};
  link_box of_the_listener(o.key, true);
  EXPECT_TRUE(becomes_closed(who_says(o, hello.bytes(o.key, &of_the_listener))));
  link_box later(o.key, false);
  (void)hello.bytes(o.key, &later);
  EXPECT_TRUE(becomes_closed(who_says(o, hello.bytes(o.key, &later))));
  EXPECT_EQ(listener_.find(1), nullptr);
}

TEST_P(LinkHandshake, AProcessThatWasReplacedIsNotAdmitted) {
  const auto o = offer_to(1, 3);
  EXPECT_TRUE(becomes_closed(who_says(o, hello_for(o, 1, 2))));
  EXPECT_EQ(listener_.find(1), nullptr);
  listener_.forget_before(1, 4);
  const auto next = offer_to(1, 4);
  EXPECT_NE(next.key, o.key);
  EXPECT_TRUE(becomes_closed(who_says(next, hello_for(o, 1, 4))));
  const auto s = who_says(next, hello_for(next, 1, 4));
  EXPECT_TRUE(becomes_linked(1));
}

TEST_P(LinkHandshake, WhoIsSlowIsDroppedAndWhoSendsByteByByteInTimeIsNot) {
  const auto o = offer_to(1);
  const auto silent = connected_to(o);
  const auto said = hello_for(o, 1);
  const auto begins = who_says(o, std::span(said).first(said.size() - 1));
  EXPECT_TRUE(becomes_closed(silent));
  EXPECT_TRUE(becomes_closed(begins));
  EXPECT_EQ(listener_.find(1), nullptr);
  const auto s = connected_to(o);
  for (const auto& b : said) {
    ASSERT_EQ(::send(s.get(), &b, 1, MSG_NOSIGNAL), 1);
    progress();
  }
  EXPECT_TRUE(becomes_linked(1));
}

/// Else it would be looked at again and again.
TEST_P(LinkHandshake, WhereNoDescriptorIsLeftNobodyIsWaitedFor) {
  const auto o = offer_to(1);
  const auto s = connected_to(o);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(s.get());
  ASSERT_GE(next, 0);
  ::close(next);
  const rlimit low{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int i = 0; i < 100 && !listener_.is_idle(); ++i) {
    progress();
    std::this_thread::sleep_for(1ms);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(listener_.is_idle());
  EXPECT_TRUE(listener_.descriptors().empty());
}

INSTANTIATE_TEST_SUITE_P(InClearAndEncrypted, LinkHandshake, testing::Bool());

TEST(LinkOffer, WhatIsNoneIsRefused) {
  const link_offer o{.port = 1234, .key = {1, 2}, .host = "::1"};
  const auto said = o.bytes();
  const auto read = link_offer::read(said);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->port, o.port);
  EXPECT_EQ(read->key, o.key);
  EXPECT_EQ(read->host, o.host);
  for (std::size_t n = 0; n <= said.size() - o.host.size(); ++n)
    EXPECT_FALSE(link_offer::read(std::span(said).first(n)).has_value()) << n;
  auto port = said;
  port[2] = std::byte{1};
  EXPECT_FALSE(link_offer::read(port).has_value());
  port[0] = port[1] = port[2] = std::byte{0};
  EXPECT_FALSE(link_offer::read(port).has_value());
  auto host = said;
  host.resize(said.size() + 100, std::byte{'1'});
  EXPECT_FALSE(link_offer::read(host).has_value());
  host = said;
  host.back() = std::byte{0};
  EXPECT_FALSE(link_offer::read(host).has_value());
}

}  // namespace
}  // namespace paracel
