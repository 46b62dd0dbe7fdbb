// SPDX-License-Identifier: BSD-3-Clause
#include "net/bind_policy.hpp"

#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <memory>
#include <string>

#include <paracel/error.hpp>

namespace paracel::net {
namespace {

bool is_local(const std::string& host) {
  return is_loopback("tcp://" + host + ":5555") && is_loopback("tcp://" + host + ":*");
}

TEST(BindPolicy, LoopbackIsTheNetworkHoweverItIsWritten) {
  for (const char* host :
       {"127.0.0.1", "127.255.255.254", "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "[::1]",
        "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:2]", "lo", "localhost"})
    EXPECT_TRUE(is_local(host)) << host;
  for (const char* address : {"ipc:///tmp/x", "ipc://@x", "inproc://x"}) EXPECT_TRUE(is_loopback(address)) << address;
}

TEST(BindPolicy, ANameThatBeginsLikeAnAddressIsNone) {
  for (const char* host :
       {"127.evil.invalid", "127.0.0.1.invalid", "localhost.invalid", "lo.invalid", "[::1].invalid", "127.0.0.256",
        "127.0.0.1;0.0.0.0", "127.0.0.1 ", "", "*", "0.0.0.0", "0", "[::]", "192.0.2.1", "[::ffff:192.0.2.1]",
        "[2001:db8::127]", "[::127.0.0.1]", "128.0.0.1", "126.255.255.255"})
    EXPECT_FALSE(is_local(host)) << host;
}

TEST(BindPolicy, AnInterfaceCountsByItsAddresses) {
  ifaddrs* all = nullptr;
  ASSERT_EQ(getifaddrs(&all), 0);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(all, &freeifaddrs);
  for (const auto* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    EXPECT_FALSE(is_local(one->ifa_name)) << one->ifa_name;
  }
}

TEST(BindPolicy, WhatOthersCanReachIsRefusedUnlessThatIsRequested) {
  EXPECT_THROW(check_bind("tcp://127.evil.invalid:*", false), usage_error);
  EXPECT_THROW(check_bind("tcp://*:5555", false), usage_error);
  EXPECT_NO_THROW(check_bind("tcp://*:5555", true));
  EXPECT_NO_THROW(check_bind("tcp://127.1:5555", false));
}

}  // namespace
}  // namespace paracel::net
