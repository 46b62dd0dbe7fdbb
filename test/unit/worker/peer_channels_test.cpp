// SPDX-License-Identifier: BSD-3-Clause
//
// What arrives in the last moment of a wait.
#include "worker/job/peer_channels.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include <paracel/error.hpp>

#include "test/support/scripted_port.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using test::scripted_port;

/// Worker 0 of 2. `turn`: of worker 1, as the scheduler knows it.
peer_channels channels_with(scripted_port::script s, const std::uint32_t& turn) {
  peer_channels::options o;
  o.job = 7;
  o.size = 2;
  o.client = 5;
  o.find = [&turn](std::uint32_t) { return worker_place{.address = "there", .turn = turn, .gone = {}}; };
  o.check = [] {};
  o.doubt = 1ms;
  o.window_bytes = 0;
  return {std::move(o), std::make_unique<scripted_port>(std::move(s))};
}

TEST(PeerChannels, AnAcknowledgementInTheLastMomentEndsASend) {
  const std::uint32_t turn = 0;
  auto channels = channels_with(
      [](scripted_port& p, net::incoming& out, std::chrono::milliseconds timeout) {
        if (timeout.count() == 0) return false;
        std::this_thread::sleep_for(20ms);  // past the limit
        net::reply_header h;
        h.value_version = p.last().sequence + 1;
        p.answer(out, h);
        return true;
      },
      turn);
  EXPECT_NO_THROW(channels.send({1, 0, 0}, shared_buffer::holding(byte_vector(10)), true, 10ms));
}

TEST(PeerChannels, AMessageOfAWorkerThatHasBeenReplacedSinceIsReceived) {
  std::uint32_t turn = 0;
  std::uint64_t sequence = 0;
  auto channels = channels_with(
      [&](scripted_port& p, net::incoming& out, std::chrono::milliseconds timeout) {
        if (timeout.count() == 0) return false;
        std::this_thread::sleep_for(2ms);  // the worker is in doubt
        net::request_header h;
        h.what = net::verb::message;
        h.job = 7;
        h.client = 9;
        h.rank = 1;
        h.sequence = ++sequence;
        h.low_watermark = 1;
        p.arrive(out, h);
        return true;
      },
      turn);
  EXPECT_TRUE(channels.take(channels.post({1, 0, 0}), {}));
  turn = 1;
  EXPECT_TRUE(channels.take(channels.post({1, 0, 0}), {}));
  EXPECT_EQ(sequence, 2U);
}

}  // namespace
}  // namespace paracel
