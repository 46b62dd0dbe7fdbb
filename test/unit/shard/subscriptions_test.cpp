// SPDX-License-Identifier: BSD-3-Clause
#include "server/shard/subscriptions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "test/support/recorded_reply.hpp"

namespace paracel::srv {
namespace {

using net::status;
using testing::ElementsAre;

struct item {
  status result;
  std::optional<double> value;
  bool operator==(const item&) const = default;
};

class replies final : public reply_sink {
 public:
  struct reply {
    net::reply_header header;
    std::vector<item> items;
  };
  void send(const net::peer&, const net::outgoing& message) override {
    const test::recorded_reply recorded(message);
    const auto& view = recorded.view;
    reply r{view.header, {}};
    if (view.header.result == status::ok) {
      net::reply_items cursor(view.body, view.header.count);
      for (net::reply_item i; cursor.next(i);) {
        item mine{i.result, std::nullopt};
        if (i.value.tag != value_tag::none) {
          double d = 0;
          std::memcpy(&d, i.value.bytes.data(), sizeof d);
          mine.value = d;
        }
        r.items.push_back(mine);
      }
      EXPECT_TRUE(cursor.ok());
    }
    EXPECT_FALSE(by_sequence.contains(view.header.sequence)) << "answered once";
    by_sequence[view.header.sequence] = r;
  }
  std::map<std::uint64_t, reply> by_sequence;
};

class Subscriptions : public testing::Test {
 protected:
  std::uint64_t store(const std::string& key, double d) {
    return keys_.store(hash_key(key), key, {value_tag::f64, std::as_bytes(std::span(&d, 1))}).version();
  }
  /// Returns the number of the request.
  std::uint64_t subscribe(std::uint64_t client, std::uint32_t clock,
                          const std::vector<std::pair<std::string, std::uint64_t>>& wanted, std::uint32_t credit = 0) {
    std::vector<std::byte> body;
    for (const auto& [key, version] : wanted) {
      net::append_item(body, key, {value_tag::i64, std::as_bytes(std::span(&version, 1))});
    }
    net::request_view r;
    r.header.what = net::verb::subscribe;
    r.header.client = client;
    r.header.clock = clock;
    r.header.credit = credit;
    r.header.count = static_cast<std::uint32_t>(wanted.size());
    r.header.sequence = ++sequence_;
    r.body = body;
    waiting_.subscribe(r, completion(sink_, {}, r.header.what, r.header.sequence, 0, 0));
    return sequence_;
  }
  bool answered(std::uint64_t s) const { return sink_.by_sequence.contains(s); }

  std::atomic<const ownership*> owned_{nullptr};
  key_store keys_{shard_settings{}, owned_};
  subscriptions waiting_{keys_};
  replies sink_;
  std::uint64_t sequence_ = 0;
};

TEST_F(Subscriptions, AreAnsweredWithWhatHasChangedWhenTheClockMoves) {
  const auto same = store("same", 1);
  const auto old = store("changed", 2);
  const auto s = subscribe(7, 3, {{"same", same}, {"changed", old}, {"gone", 9}, {"changed", 0}});
  store("changed", 5);
  waiting_.clock_moved(3);
  EXPECT_FALSE(answered(s)) << "the push_cache knows as much";
  waiting_.clock_moved(4);
  ASSERT_TRUE(answered(s));
  EXPECT_EQ(sink_.by_sequence[s].header.clock, 4U);
  EXPECT_THAT(sink_.by_sequence[s].items,
              ElementsAre(item{status::ok, {}}, item{status::ok, 5}, item{status::not_found, {}}, item{status::ok, 5}));
  EXPECT_EQ(waiting_.parked(), 0U);
  waiting_.clock_moved(5);
}

TEST_F(Subscriptions, OfSomebodyWhoKnowsLessAreAnsweredAtOnce) {
  store("k", 1);
  waiting_.clock_moved(6);
  const auto s = subscribe(7, 5, {{"k", 0}});
  ASSERT_TRUE(answered(s));
  EXPECT_EQ(sink_.by_sequence[s].header.clock, 6U);
}

TEST_F(Subscriptions, AClientHasOne) {
  store("k", 1);
  const auto first = subscribe(7, 0, {{"k", 0}});
  const auto others = subscribe(8, 0, {{"k", 0}});
  const auto second = subscribe(7, 0, {{"k", 0}});
  ASSERT_TRUE(answered(first));
  EXPECT_TRUE(sink_.by_sequence[first].items.empty());
  EXPECT_FALSE(answered(second));
  EXPECT_FALSE(answered(others));
  waiting_.clock_moved(1);
  EXPECT_EQ(sink_.by_sequence[second].items.size(), 1U);
  EXPECT_EQ(sink_.by_sequence[others].items.size(), 1U);
}

TEST_F(Subscriptions, AClockThatWasOvertakenChangesNothing) {
  store("k", 1);
  waiting_.clock_moved(5);
  const auto s = subscribe(7, 5, {{"k", 0}});
  waiting_.clock_moved(4);
  EXPECT_FALSE(answered(s));
  waiting_.close(status::job_ended, "over");
  EXPECT_EQ(sink_.by_sequence[s].header.result, status::job_ended);
}

TEST_F(Subscriptions, ValuesBeyondTheCreditAreOnlyNamed) {
  store("a", 1);
  store("b", 2);
  waiting_.clock_moved(1);
  const auto s = subscribe(7, 0, {{"a", 0}, {"b", 0}}, 16 + 16 + 8);
  EXPECT_THAT(sink_.by_sequence[s].items, ElementsAre(item{status::ok, 1}, item{status::too_large, {}}));
}

TEST_F(Subscriptions, MalformedOnesAreRefused) {
  std::vector<std::byte> body;
  const std::uint64_t version = 1;
  net::append_item(body, "k", {value_tag::i64, std::as_bytes(std::span(&version, 1))});
  EXPECT_TRUE(is_subscription(body, 1));
  EXPECT_TRUE(is_subscription({}, 0));
  EXPECT_FALSE(is_subscription(body, 2));
  EXPECT_FALSE(is_subscription(std::span(body).first(body.size() - 1), 1));
  net::append_item(body, "k", {value_tag::i32, std::as_bytes(std::span(&version, 1)).first(4)});
  EXPECT_FALSE(is_subscription(body, 2));
  net::request_view r;
  r.header.what = net::verb::subscribe;
  r.header.count = 3;
  r.header.sequence = 1;
  r.body = body;
  waiting_.subscribe(r, completion(sink_, {}, r.header.what, 1, 0, 0));
  EXPECT_EQ(sink_.by_sequence[1].header.result, status::bad_request);
  EXPECT_EQ(waiting_.parked(), 0U);
}

}  // namespace
}  // namespace paracel::srv
