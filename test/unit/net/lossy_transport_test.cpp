// SPDX-License-Identifier: BSD-3-Clause
#include "net/lossy_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"

namespace paracel::net {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t requests = 400;

struct passage {
  std::vector<std::uint64_t> arrived;   // numbers of requests, in the order of their arrival
  std::vector<std::uint64_t> answered;  // of replies that came back
  std::uint64_t lost = 0, doubled = 0, delayed = 0;
  std::string report;
};

/// Sends numbered requests over one channel; each that arrives is answered.
passage pass(double percent, std::uint64_t seed, const std::string& process, std::uint16_t flags = flag_stream,
             verb what = verb::push) {
  lossy_transport over(std::make_shared<inproc_transport>(), {.percent = percent, .seed = seed, .process = process});
  passage p;
  const auto server = over.open();
  const auto client = over.open();
  const auto channel = client->connect(server->bind("inproc://here"));
  const auto serve = [&] {
    for (incoming in; server->receive(in, 0ms);) {
      request_view r;
      ASSERT_EQ(decode(in.frame, in.tail.size(), r), nullptr);
      p.arrived.push_back(r.header.sequence);
      reply_header h;
      h.what = r.header.what;
      h.sequence = r.header.sequence;
      reply_bytes head;
      encode(h, head);
      server->reply(in.from, {.head = head});
    }
  };
  const auto collect = [&](std::chrono::milliseconds wait) {
    for (incoming in; client->receive(in, wait);) {
      reply_view r;
      ASSERT_EQ(decode(in.frame, in.tail.size(), r), nullptr);
      EXPECT_EQ(in.channel, channel);
      p.answered.push_back(r.header.sequence);
    }
  };
  for (std::uint64_t s = 1; s <= requests; ++s) {
    request_header h;
    h.what = what;
    h.flags = flags;
    h.sequence = s;
    request_bytes head;
    encode(h, head);
    client->send(channel, {.head = head});
    serve();
    collect(0ms);
  }
  for (int i = 0; i < 4; ++i) {  // what was delayed
    collect(60ms);
    serve();
  }
  const auto& c = over.counts();
  p.lost = c.lost;
  p.doubled = c.doubled;
  p.delayed = c.delayed;
  p.report = over.report();
  return p;
}

std::vector<std::uint64_t> all() {
  std::vector<std::uint64_t> numbers(requests);
  for (std::uint64_t s = 0; s < requests; ++s) numbers[s] = s + 1;
  return numbers;
}

TEST(LossyTransport, DisturbsAboutAsManyAsItIsToldAndKeepsTheOrder) {
  const auto p = pass(10, 3, "w0");
  EXPECT_GT(p.lost, 5U);
  EXPECT_GT(p.doubled, 5U);
  EXPECT_GT(p.delayed, 5U);
  EXPECT_LT(p.lost + p.doubled + p.delayed, 2 * requests / 5) << p.report;
  EXPECT_LT(p.answered.size(), requests + p.doubled);
  EXPECT_TRUE(std::ranges::is_sorted(p.arrived));
  EXPECT_TRUE(std::ranges::is_sorted(p.answered));
  EXPECT_NE(p.arrived, all());
  EXPECT_THAT(p.report, testing::StartsWith("--drop-messages 10 --seed 3: of "));
}

TEST(LossyTransport, ChoosesBySeedAndProcess) {
  // Requests only: what happens to their replies depends on when they arrive.
  const auto chosen = [](std::uint64_t seed, const std::string& process) {
    lossy_transport over(std::make_shared<inproc_transport>(), {.percent = 20, .seed = seed, .process = process});
    const auto server = over.open();
    const auto client = over.open();
    const auto channel = client->connect(server->bind("inproc://here"));
    std::vector<std::uint64_t> lost;
    for (std::uint64_t s = 1; s <= requests; ++s) {
      request_header h;
      h.what = verb::push;
      h.flags = flag_stream;
      h.sequence = s;
      request_bytes head;
      encode(h, head);
      const std::uint64_t before = over.counts().lost;
      client->send(channel, {.head = head});
      if (over.counts().lost != before) lost.push_back(s);
    }
    return lost;
  };
  const auto first = chosen(1, "w0");
  EXPECT_GT(first.size(), 5U);
  EXPECT_EQ(chosen(1, "w0"), first);
  EXPECT_NE(chosen(2, "w0"), first);
  EXPECT_NE(chosen(1, "w1"), first);
}

TEST(LossyTransport, LeavesAloneWhatNothingWouldRepair) {
  const auto no_stream = pass(50, 1, "w0", 0, verb::heartbeat);
  EXPECT_EQ(no_stream.arrived, all());
  EXPECT_EQ(no_stream.answered, all());
}

TEST(LossyTransport, RefusesWhatIsNoPercentageOrSeed) {
  const auto why = [](const char* percent, const char* seed) -> std::string {
    try {
      (void)lossy_transport::options_from(percent, seed, "w0");
      return {};
    } catch (const usage_error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(why("0.5", "17"), "");
  for (const auto* percent : {"0", "-1", "51", "x", "", "nan"})
    EXPECT_EQ(why(percent, "1"),
              "--drop-messages: want a percentage above 0, at most 50, not \"" + std::string(percent) + "\"");
  for (const auto* seed : {"-1", "1.5", "x"})
    EXPECT_EQ(why("1", seed), "--seed: want a whole number, not \"" + std::string(seed) + "\"");
}

}  // namespace
}  // namespace paracel::net
