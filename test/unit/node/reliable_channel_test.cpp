// SPDX-License-Identifier: BSD-3-Clause
#include "net/reliable_channel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/request/sender_connections.hpp"
#include "test/support/flaky_transport.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::on_loss;
using net::status;
using net::verb;

/// The other end: what it has accepted and refused; it answers everything.
class receiver {
 public:
  explicit receiver(net::transport& over) : port_(over.open()), address_(port_->bind("inproc://*")) {}
  [[nodiscard]] const std::string& address() const { return address_; }

  void work() {
    net::incoming in;
    while (port_->receive(in, 0ms)) {
      net::request_view r;
      ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
      flags.push_back(r.header.flags);
      last = r.header;
      const bool takes = senders_.accepts(r.header, in.from);
      if (!takes) ++refused;
      else if (r.header.what == verb::ping) ++pings;
      else accepted.push_back(std::string(net::text_of(r.body)) + std::string(net::text_of(in.tail.bytes())));
      if (silent) continue;
      net::reply_header h;
      h.what = r.header.what;
      h.sequence = r.header.sequence;
      h.result = takes ? status::ok : status::connection_reset;
      net::reply_bytes head;
      net::encode(h, head);
      port_->reply(in.from, {.head = head});
    }
  }
  /// Forgets all senders.
  void forget() { senders_ = srv::sender_connections(); }

  std::vector<std::string> accepted;
  std::vector<std::uint16_t> flags;
  net::request_header last;
  int refused = 0;
  int pings = 0;
  bool silent = false;

 private:
  std::unique_ptr<net::port> port_;
  std::string address_;
  srv::sender_connections senders_;
};

constexpr auto first_of_stream = net::flag_stream | net::flag_first;

class ReliableChannel : public testing::Test {
 protected:
  net::reliable_channel channel(on_loss policy) { return {*port_, other_.address(), {.policy = policy}}; }
  static net::request_header header(std::uint64_t sequence) {
    net::request_header h;
    h.what = verb::push;
    h.client = 9;
    h.sequence = sequence;
    return h;
  }
  static void send(net::reliable_channel& c, std::uint64_t sequence) {
    auto h = header(sequence);
    c.send(h, net::bytes_of(std::to_string(sequence)));
  }
  static void send_kept(net::reliable_channel& c, std::uint64_t sequence) {
    c.send_kept(header(sequence), shared_buffer::copy_of(net::bytes_of(std::to_string(sequence))), {});
  }
  /// The connection breaks, and what `f` sends is lost with it.
  template <class F>
  void losing(const F& f) {
    over_.set_breaks(true);
    f();
    over_.set_breaks(false);
  }
  /// Passes all replies to the channel. Returns: how many acknowledged kept messages.
  int take_replies(net::reliable_channel& c) {
    other_.work();
    int acknowledged = 0;
    net::incoming in;
    while (port_->receive(in, 0ms)) {
      net::reply_view r;
      EXPECT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
      if (!c.owns(in.channel)) continue;
      c.take(r.header, in.channel);
      if (r.header.result == status::ok && c.acknowledge(r.header.sequence)) ++acknowledged;
    }
    return acknowledged;
  }
  static void check_health(net::reliable_channel& c, std::chrono::nanoseconds now) {
    c.check_health(now, header(0), {});
  }
  /// A reply is late: checks the channel four times a second until it is considered broken. Returns: the time until
  /// then, at most `limit`.
  std::chrono::milliseconds time_until_broken(net::reliable_channel& c, std::chrono::milliseconds limit = 1h) {
    std::chrono::milliseconds t{0};
    for (const auto begin = now_; !c.is_broken() && t < limit; now_ += 250ms) {
      t = now_ - begin;
      check_health(c, now_);
      take_replies(c);
    }
    return t;
  }

  test::flaky_transport over_{1};
  receiver other_{over_};
  std::unique_ptr<net::port> port_ = over_.open();
  std::chrono::milliseconds now_{100'000};
};

TEST_F(ReliableChannel, TheFirstMessageOverAConnectionIsMarkedAndTheChannelConnectsWithIt) {
  auto c = channel(on_loss::notify);
  EXPECT_EQ(c.connection(), -1);
  send(c, 1);
  EXPECT_GE(c.connection(), 0);
  send(c, 2);
  EXPECT_EQ(take_replies(c), 0) << "nothing was kept";
  c.renew();
  send(c, 3);
  send(c, 4);
  take_replies(c);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "2", "3", "4"}));
  EXPECT_EQ(other_.flags,
            (std::vector<std::uint16_t>{first_of_stream, net::flag_stream, first_of_stream, net::flag_stream}));
}

TEST_F(ReliableChannel, WhatFollowsALostMessageIsRefusedAndAllThatIsKeptIsSentAgainInOrder) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  EXPECT_EQ(take_replies(c), 1);
  EXPECT_FALSE(c.keeps());
  send_kept(c, 2);
  losing([&] { send_kept(c, 3); });
  send_kept(c, 4);
  c.send_kept(header(5), shared_buffer::copy_of(net::bytes_of("5")),
              shared_buffer::copy_of(net::bytes_of(" and a tail")));
  take_replies(c);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "2"})) << "its answer went with the connection";
  EXPECT_EQ(other_.refused, 2);
  ASSERT_TRUE(c.is_broken());
  other_.accepted.clear();
  c.renew();
  EXPECT_FALSE(c.is_broken());
  send_kept(c, 6);
  EXPECT_EQ(take_replies(c), 5);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"2", "3", "4", "5 and a tail", "6"}));
  EXPECT_FALSE(c.keeps());
  EXPECT_FALSE(c.acknowledge(6)) << "twice";
}

TEST_F(ReliableChannel, WhatIsBelowANumberIsAcknowledgedAtOnce) {
  auto c = channel(on_loss::resend);
  for (std::uint64_t n = 1; n <= 3; ++n) send_kept(c, n);
  c.send_kept(header(4), {}, shared_buffer::copy_of(net::bytes_of("a tail")));
  EXPECT_EQ(c.kept_bytes(), 3 + 6U);
  c.acknowledge_before(3);
  EXPECT_EQ(c.oldest_kept(), 3U);
  EXPECT_EQ(c.kept_bytes(), 1 + 6U);
  EXPECT_FALSE(c.acknowledge(2));
  c.renew();
  other_.work();
  EXPECT_EQ(other_.last.low_watermark, 3U) << "of a later transmission";
  c.acknowledge_before(9);
  EXPECT_FALSE(c.keeps());
  EXPECT_EQ(c.kept_bytes(), 0U);
}

TEST_F(ReliableChannel, ALostMessageThatNothingFollowsIsFoundByAPing) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  take_replies(c);
  losing([&] { send_kept(c, 2); });
  EXPECT_EQ(take_replies(c), 0);
  EXPECT_FALSE(c.is_broken()) << "it is just late";
  check_health(c, 1s);
  EXPECT_FALSE(c.is_broken());
  take_replies(c);
  EXPECT_TRUE(c.is_broken());
  EXPECT_EQ(other_.last.what, verb::ping);
  EXPECT_EQ(other_.last.count, net::ping_alive);
  EXPECT_EQ(other_.last.client, 9U);
  c.renew();
  EXPECT_EQ(take_replies(c), 1);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "2"}));
}

TEST_F(ReliableChannel, APingThatIsAnsweredEndsTheSilence) {
  auto c = channel(on_loss::notify);
  send(c, 1);
  for (now_ = 0s; now_ < 1000s; now_ += 4s) {
    check_health(c, now_);
    take_replies(c);
    ASSERT_FALSE(c.is_broken());
  }
  EXPECT_EQ(other_.pings, 250);
}

TEST_F(ReliableChannel, PingsThatAreAnsweredAreSentOnceASecondHoweverOftenItIsChecked) {
  auto c = channel(on_loss::notify);
  send(c, 1);
  EXPECT_EQ(time_until_broken(c, 60s), 60s);
  EXPECT_LE(other_.pings, 61);
  over_.swallow_all();
  now_ += 1s;
  EXPECT_EQ(time_until_broken(c, 60s), 750ms);
}

TEST_F(ReliableChannel, AConnectionThatHasFallenSilentIsReplacedByOneThatAnswers) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  EXPECT_EQ(take_replies(c), 1);
  for (std::uint64_t n = 2; n <= 5; ++n) {
    over_.swallow_all();
    send_kept(c, n);
    const auto before = c.connection();
    EXPECT_EQ(time_until_broken(c, 1min), 750ms) << "the others have not been slow";
    c.renew();
    EXPECT_NE(c.connection(), before);
    EXPECT_EQ(take_replies(c), 1);
    EXPECT_FALSE(c.is_broken());
  }
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "2", "3", "4", "5"}));
  EXPECT_EQ(other_.flags.back(), first_of_stream);
}

TEST_F(ReliableChannel, AProbeThatFallsSilentIsReplacedToo) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  over_.swallow_all();
  check_health(c, 100s);
  check_health(c, 100s + 250ms);  // sends the probe
  over_.swallow_all();
  now_ = 100'500ms;
  EXPECT_EQ(time_until_broken(c, 1min), 1250ms);
  c.renew();
  EXPECT_EQ(take_replies(c), 1);
}

TEST_F(ReliableChannel, ASlowReceiverKeepsItsConnectionHoweverLongItTakes) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  const auto before = c.connection();
  for (int i = 0; i < 400; ++i, now_ += 250ms) check_health(c, now_);  // 100 s in which it does nothing
  EXPECT_FALSE(c.is_broken());
  other_.work();
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1"}));
  EXPECT_LT(other_.pings + other_.refused, 130) << "one a second, and some probes";
  EXPECT_EQ(take_replies(c), 1);
  EXPECT_EQ(time_until_broken(c, 10s), 10s) << "it answers pings";
  EXPECT_EQ(c.connection(), before);
}

TEST_F(ReliableChannel, ASlowReceiverThatAnswersTheProbeFirstIsNotTakenForASilentConnection) {
  auto c = channel(on_loss::notify);
  send(c, 1);
  check_health(c, 100s);
  check_health(c, 100s + 250ms);
  check_health(c, 100s + 500ms);  // as if only the probe had been answered by now
  take_replies(c);                // both are answered
  EXPECT_EQ(time_until_broken(c, 5s), 5s);
}

TEST_F(ReliableChannel, WhatArrivesOnTheConnectionEndsTheSilenceEvenIfTheOwnerAloneKnows) {
  auto c = channel(on_loss::notify);
  send(c, 1);
  take_replies(c);
  over_.swallow_all();  // the pings: a reply that the owner handles itself would arrive
  for (; now_ < 120s; now_ += 250ms) {
    c.check_health(now_, header(0), {.heard = now_ - 500ms});
    take_replies(c);
    ASSERT_FALSE(c.is_broken());
  }
}

/// A port that reports traffic.
class slow_link final : public net::port {
 public:
  explicit slow_link(std::unique_ptr<net::port> inner) : inner_(std::move(inner)) {}
  std::string bind(const std::string& address) override { return inner_->bind(address); }
  int connect(const std::string& address) override { return inner_->connect(address); }
  void disconnect(int channel) override { inner_->disconnect(channel); }
  std::uint64_t traffic(int) override { return bytes; }
  void send(int channel, const net::outgoing& message) override { inner_->send(channel, message); }
  void reply(const net::peer& to, const net::outgoing& message) override { inner_->reply(to, message); }
  bool receive(net::incoming& out, std::chrono::milliseconds timeout) override { return inner_->receive(out, timeout); }

  std::uint64_t bytes = 1'000'000;

 private:
  std::unique_ptr<net::port> inner_;
};

TEST_F(ReliableChannel, ALargeReplyOnItsWayIsNotSilence) {
  auto* link = new slow_link(std::move(port_));
  port_.reset(link);
  auto c = channel(on_loss::notify);
  send(c, 1);
  over_.swallow_all();
  for (; now_ < 160s; now_ += 250ms) {
    link->bytes += 100'000;
    check_health(c, now_);
    take_replies(c);
    ASSERT_FALSE(c.is_broken());
  }
  EXPECT_EQ(time_until_broken(c, 1min), 500ms) << "it has stopped, since the last check";
}

TEST_F(ReliableChannel, ALargeMessageMayTakeLongerToArriveAndTwiceThatAfterEachRenewalInVain) {
  auto c = channel(on_loss::resend);
  const auto large = shared_buffer::copy_of(std::vector<std::byte>(60'000'000));
  for (const auto expected : {3'750ms, 7'000ms, 13'500ms}) {
    if (!c.keeps()) c.send_kept(header(1), {}, large);
    over_.swallow_all();
    EXPECT_EQ(time_until_broken(c), expected);
    c.renew();
  }
  other_.work();
  EXPECT_EQ(take_replies(c), 1);
  c.send_kept(header(2), {}, large);
  over_.swallow_all();
  EXPECT_EQ(time_until_broken(c), 3'750ms);
}

TEST_F(ReliableChannel, ARenewalThatCannotConnectIsMadeUpForByTheNextMessage) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  EXPECT_EQ(take_replies(c), 1);
  losing([&] { send_kept(c, 2); });
  send_kept(c, 3);  // which is refused
  take_replies(c);
  ASSERT_TRUE(c.is_broken());
  over_.set_connects(false);
  EXPECT_THROW(c.renew(), network_error);
  EXPECT_LT(c.connection(), 0);
  EXPECT_THROW(send_kept(c, 4), network_error);
  EXPECT_EQ(c.oldest_kept(), 2U) << "nothing is forgotten";
  over_.set_connects(true);
  send_kept(c, 5);
  take_replies(c);
  ASSERT_TRUE(c.is_broken()) << "what was not sent comes first";
  c.renew();
  EXPECT_EQ(take_replies(c), 4);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "2", "3", "4", "5"}));
}

TEST_F(ReliableChannel, WithNotifyTheOwnerSendsAgain) {
  auto c = channel(on_loss::notify);
  send(c, 1);
  take_replies(c);
  losing([&] { send(c, 2); });
  send(c, 3);
  take_replies(c);
  ASSERT_TRUE(c.is_broken());
  c.renew();
  take_replies(c);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1"}));
  send(c, 7);  // such as a question about 2 and 3
  take_replies(c);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "7"}));
}

TEST_F(ReliableChannel, WithFailNothingIsRenewedAndABrokenOrSilentConnectionIsReported) {
  for (const bool swallows : {false, true}) {
    auto c = channel(on_loss::fail);
    EXPECT_TRUE(c.has_to_mark());
    send(c, 1);
    EXPECT_FALSE(c.has_to_mark()) << "a request costs nothing more";
    take_replies(c);
    for (int i = 0; i < 400; ++i, now_ += 250ms) check_health(c, now_);
    EXPECT_FALSE(c.is_broken()) << "a server may be silent for as long as a user's function runs";
    take_replies(c);
    now_ += 1s;
    if (swallows) {
      over_.swallow_all();
      send(c, 2);
      EXPECT_EQ(time_until_broken(c, 1min), 750ms);
    } else {
      losing([&] { send(c, 2); });
      check_health(c, now_);
      take_replies(c);
    }
    EXPECT_TRUE(c.is_broken());
    EXPECT_DEATH(c.renew(), "on_loss::fail");
  }
}

TEST_F(ReliableChannel, AReceiverThatHasForgottenTheSenderMakesItBeginAnew) {
  auto c = channel(on_loss::resend);
  send_kept(c, 1);
  take_replies(c);
  other_.forget();
  send_kept(c, 2);
  take_replies(c);
  ASSERT_TRUE(c.is_broken());
  c.renew();
  EXPECT_EQ(take_replies(c), 1);
  EXPECT_EQ(other_.accepted, (std::vector<std::string>{"1", "2"}));
}

TEST_F(ReliableChannel, EverythingArrivesInOrderWhateverBreaks) {
  test::flaky_transport over(7);
  receiver other(over);
  const auto port = over.open();
  net::reliable_channel c(*port, other.address(), {.policy = on_loss::resend});
  over.set_breaks(true);
  constexpr std::uint64_t messages = 2000;
  constexpr std::uint64_t window = 16;
  std::uint64_t sent = 0;
  std::set<std::uint64_t> answered;
  for (int turn = 0; answered.size() < messages; ++turn) {
    ASSERT_LT(turn, 100'000) << "it waits for ever";
    while (sent < messages && sent - answered.size() < window) send_kept(c, ++sent);
    other.work();
    net::incoming in;
    while (port->receive(in, 0ms)) {
      net::reply_view r;
      ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
      if (!c.owns(in.channel)) continue;
      c.take(r.header, in.channel);
      if (r.header.result == status::ok && c.acknowledge(r.header.sequence)) answered.insert(r.header.sequence);
    }
    if (!c.is_broken() && c.keeps()) check_health(c, std::chrono::seconds(turn));
    if (c.is_broken()) c.renew();
  }
  EXPECT_GT(over.broken(), 100U);
  std::uint64_t newest = 0;  // a receiver that executes each once sees them in order
  for (const auto& text : other.accepted) {
    const auto n = std::stoull(text);
    ASSERT_LE(n, newest + 1);
    newest = std::max<std::uint64_t>(newest, n);
  }
  EXPECT_EQ(newest, messages);
}

TEST(SilenceTimer, ReportsASecondInWhichNothingArrivedAndThenEachQuarter) {
  net::silence_timer t;
  EXPECT_FALSE(t.add(999ms));
  EXPECT_TRUE(t.add(1ms));
  EXPECT_FALSE(t.add(249ms));
  EXPECT_TRUE(t.add(1ms));
  t.reset();
  EXPECT_EQ(t.heard(), 1250ms);
  EXPECT_FALSE(t.add(999ms));
  EXPECT_TRUE(t.add(1ms));
  EXPECT_EQ(t.waited(), 2250ms) << "a clock, which no message turns back";
}

}  // namespace
}  // namespace paracel
