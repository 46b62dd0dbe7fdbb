// SPDX-License-Identifier: BSD-3-Clause
//
// Requests that name their rows by the digest of a list, at the server object, against the same requests with ids.
#include "server/store/row_lists.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "net/row_codec.hpp"
#include "server/node/server.hpp"
#include "test/support/paths.hpp"
#include "test/support/row_replies.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::HasSubstr;
using bytes = std::vector<std::byte>;
using ids = std::vector<std::uint64_t>;
using floats = std::vector<float>;

using test::row_reply;

bytes digest_of_ids(const ids& list) {
  const auto d = digest_of(std::as_bytes(std::span(list)));
  const auto b = std::as_bytes(std::span(&d, 1));
  return {b.begin(), b.end()};
}

/// How a request names its rows.
enum class naming { by_ids, with_digest, by_digest };

class RowLists : public testing::Test {
 protected:
  RowLists() { reset({}); }
  void reset(server_options o, const std::string& optimizer = {}) {
    o.plugin_folders = {test::plugin_folder()};
    o.incarnation = 7;
    server_ = std::make_unique<server>(o);
    for (const auto* table : {"t", "u"}) {
      net::table_definition d;
      d.element = value_tag::f32;
      d.width = 2;
      d.init = row_init::uniform(-1, 1, 3);
      if (!optimizer.empty()) {
        d.plugin = "libparacel_default.so";
        d.symbol = optimizer;
      }
      net::request_header h;
      h.what = verb::table_open;
      h.key_bytes = 1;
      bytes body(net::bytes_of(table).begin(), net::bytes_of(table).end());
      const auto definition = net::encode(d);
      body.insert(body.end(), definition.begin(), definition.end());
      ASSERT_EQ(call(h, body).result(), status::ok);
    }
  }
  /// Returns: its sequence number.
  std::uint64_t send(net::request_header h, const bytes& body, shared_buffer tail = {}) {
    h.client = client_;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    h.tail_bytes = tail.size();
    bytes frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    frame.insert(frame.end(), body.begin(), body.end());
    net::request_view request;
    EXPECT_EQ(net::decode(frame, tail.size(), request), nullptr);
    net::peer from;
    from.size = 1;
    server_->handle(0, request, std::move(tail), server_->completion_for(sink_, from, request.header));
    return sequence_;
  }
  row_reply call(const net::request_header& h, const bytes& body, shared_buffer tail = {}) {
    const auto number = send(h, body, std::move(tail));
    EXPECT_EQ(sink_.all.size(), 1U) << "exactly one answer";
    auto r = sink_.take();
    EXPECT_EQ(r.header.sequence, number);
    return r;
  }
  net::request_header header(verb what, std::size_t count, naming by, const std::string& table = "t") const {
    net::request_header h;
    h.what = what;
    h.table = net::table_id(table);
    h.tag = value_tag::f32;
    h.count = static_cast<std::uint32_t>(count);
    h.flags = by == naming::by_digest ? net::flag_listed : std::uint16_t{0};
    h.key_bytes = by == naming::by_ids ? 0 : 16;
    return h;
  }
  static bytes body_of(const ids& list, naming by, const floats& values = {}) {
    bytes body = by == naming::by_ids ? bytes() : digest_of_ids(list);
    const auto add = [&](std::span<const std::byte> b) { body.insert(body.end(), b.begin(), b.end()); };
    if (by != naming::by_digest) add(std::as_bytes(std::span(list)));
    add(std::as_bytes(std::span(values)));
    return body;
  }
  row_reply rows(verb what, const ids& list, naming by, const floats& values = {}, const std::string& table = "t") {
    return call(header(what, list.size(), by, table), body_of(list, by, values));
  }
  floats pulled(const ids& list, naming by = naming::by_ids, const std::string& table = "t") {
    const auto r = rows(verb::rows_pull, list, by, {}, table);
    EXPECT_EQ(r.result(), status::ok) << r.text();
    return r.numbers();
  }

  std::unique_ptr<server> server_;
  test::row_replies sink_;
  std::uint64_t sequence_ = 0;
  std::uint64_t client_ = 5;
};

TEST_F(RowLists, AListIsKnownOnceItsIdsHaveComeWithItsDigest) {
  const ids list{9, 2, 7, 2};
  EXPECT_EQ(rows(verb::rows_pull, list, naming::by_digest).result(), status::unknown_set);
  const auto values = pulled(list, naming::with_digest);
  EXPECT_EQ(values, pulled(list));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pulled(list, naming::by_digest), values);
  EXPECT_EQ(rows(verb::rows_update, list, naming::by_digest, floats(8, 1)).result(), status::ok);
  auto want = values;
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += i / 2 % 2 == 0 ? 1 : 2;  // row 2 occurs twice
  EXPECT_EQ(pulled(list, naming::by_digest), want);
  EXPECT_EQ(rows(verb::rows_push, list, naming::by_digest, floats(8, 5)).result(), status::ok);
  EXPECT_EQ(pulled(list), floats(8, 5));
  const auto removed = rows(verb::rows_remove, list, naming::by_digest);
  EXPECT_EQ(removed.header.count, 3U);
  EXPECT_EQ(pulled(list, naming::by_digest), values) << "made again";
}

TEST_F(RowLists, TheFramesAreThoseOfTheDocument) {
  // The digest as libxxhash computes it for the 24 bytes of the ids: the low word first.
  constexpr std::array<unsigned char, 16> digest{0x1f, 0xcf, 0x0d, 0xc5, 0xf9, 0x21, 0x6f, 0x02,
                                                 0x17, 0x01, 0x7a, 0x83, 0xe2, 0x6a, 0xd6, 0xd0};
  const ids list{1, 2, 3};
  const auto first = body_of(list, naming::with_digest, {0.5F});
  ASSERT_EQ(first.size(), 16U + 3 * 8 + 4);
  EXPECT_EQ(std::memcmp(first.data(), digest.data(), digest.size()), 0);
  EXPECT_EQ(first[16], std::byte{1});
  const auto later = body_of(list, naming::by_digest, {0.5F});
  ASSERT_EQ(later.size(), 16U + 4);
  EXPECT_EQ(std::memcmp(later.data(), digest.data(), digest.size()), 0);
  bytes frame(net::request_header_bytes);
  net::encode(header(verb::rows_pull, 3, naming::by_digest), std::span<std::byte, net::request_header_bytes>(frame));
  EXPECT_EQ(frame[5], std::byte{97});
  EXPECT_EQ(frame[6], std::byte{128}) << "listed";
  EXPECT_EQ(frame[80], std::byte{16}) << "key bytes";
  EXPECT_EQ(net::flag_uniform_reply, 256);
}

TEST_F(RowLists, AListIsOneOfItsTable) {
  const ids list{1, 2, 3};
  (void)pulled(list, naming::with_digest);
  EXPECT_EQ(rows(verb::rows_pull, list, naming::by_digest, {}, "u").result(), status::unknown_set);
  const auto brought = header(verb::rows_push, 3, naming::with_digest, "u");
  EXPECT_EQ(call(brought, body_of(list, naming::with_digest, floats(6, 4))).result(), status::ok);
  EXPECT_EQ(pulled(list, naming::by_digest, "u"), floats(6, 4));
  EXPECT_NE(pulled(list, naming::by_digest), floats(6, 4));
}

TEST_F(RowLists, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const ids list{1, 2, 3};
  const auto before = pulled(list, naming::with_digest);
  const auto refused = [&](net::request_header h, const bytes& body, const char* why) {
    const auto r = call(h, body);
    EXPECT_EQ(r.result(), status::bad_request) << why;
    EXPECT_THAT(r.text(), HasSubstr(why));
  };
  const auto update = header(verb::rows_update, 3, naming::by_digest);
  refused(update, body_of(list, naming::by_digest, floats(5, 1)), "do not fit the payload");
  refused(update, body_of(list, naming::by_digest, floats(8, 1)), "do not fit the payload");
  refused(header(verb::rows_pull, 2, naming::by_digest), body_of(list, naming::by_digest), "another number of rows");
  refused(header(verb::rows_pull, 3, naming::by_digest), body_of(list, naming::by_digest, {1}),
          "do not fit the payload");
  auto h = header(verb::rows_pull, 3, naming::by_digest);
  h.key_bytes = 3;
  refused(h, {std::byte{1}, std::byte{2}, std::byte{3}}, "a name of 16 bytes");
  h.key_bytes = 0;
  refused(h, {}, "a name of 16 bytes");
  h = header(verb::rows_pull, 3, naming::with_digest);
  h.flags |= net::flag_named;
  refused(h, body_of(list, naming::with_digest), "one of ids");
  auto wrong = body_of(list, naming::with_digest, floats(6, 1));
  wrong[0] ^= std::byte{1};
  refused(header(verb::rows_update, 3, naming::with_digest), wrong, "not those of its digest");
  h = header(verb::rows_pull, 3, naming::by_digest);
  h.tag = value_tag::f64;
  EXPECT_EQ(call(h, body_of(list, naming::by_digest)).result(), status::type_mismatch);
  EXPECT_EQ(pulled(list), before);
}

TEST_F(RowLists, RandomRequestsByListAndByIdsAgree) {
  for (const std::string optimizer : {"", "paracel_adagrad", "paracel_adam"}) {
    reset({}, optimizer);
    std::mt19937 random(optimizer.size() + 1);
    std::vector<ids> lists(6);
    for (auto& l : lists)
      for (std::size_t i = 0, n = 1 + random() % 100; i < n; ++i) l.push_back(random() % 120);
    // Table u gets the same requests with ids.
    for (int step = 0; step < 400; ++step) {
      const auto& l = lists[random() % lists.size()];
      const auto what =
          std::vector{verb::rows_pull, verb::rows_push, verb::rows_update, verb::rows_remove}[random() % 4];
      if (what == verb::rows_remove && random() % 4 != 0) continue;
      floats values;
      if (what == verb::rows_push || what == verb::rows_update)
        for (std::size_t i = 0; i < l.size() * 2; ++i) values.push_back(static_cast<float>(random() % 100) / 8);
      auto one = rows(what, l, naming::by_digest, values);
      if (one.result() == status::unknown_set) one = rows(what, l, naming::with_digest, values);
      const auto other = rows(what, l, naming::by_ids, values, "u");
      ASSERT_EQ(one.result(), status::ok) << one.text();
      ASSERT_EQ(one.body, other.body) << step;
      ASSERT_EQ(one.header.count, other.header.count);
    }
    ids all(120);
    for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = i;
    EXPECT_EQ(pulled(all), pulled(all, naming::by_ids, "u"));
  }
}

TEST_F(RowLists, UnderBspAListIsStagedWithItsIds) {
  const ids list{4, 8};
  const auto before = pulled(list, naming::with_digest);
  auto h = header(verb::rows_update, 2, naming::by_digest);
  h.flags |= net::flag_staged;
  h.clock = 0;
  ASSERT_EQ(call(h, body_of(list, naming::by_digest, floats(4, 1))).result(), status::ok);
  EXPECT_EQ(pulled(list, naming::by_digest), before);
  (void)rows(verb::rows_remove, {8}, naming::by_ids);
  h = header(verb::rows_pull, 2, naming::by_digest);
  h.flags |= net::flag_bsp_read;
  h.clock = 1;
  auto want = before;
  for (auto& w : want) w += 1;
  EXPECT_EQ(call(h, body_of(list, naming::by_digest)).numbers(), want);
}

TEST_F(RowLists, WhatFollowsAnUnknownListWaitsUntilTheIdsCome) {
  const ids list{1, 2};
  const auto before = pulled(list);
  EXPECT_EQ(rows(verb::rows_update, list, naming::by_digest, floats(4, 1)).result(), status::unknown_set);
  const auto pull = send(header(verb::rows_pull, 2, naming::by_ids), body_of(list, naming::by_ids));
  const auto by_list = send(header(verb::rows_pull, 2, naming::by_digest), body_of(list, naming::by_digest));
  EXPECT_TRUE(sink_.all.empty()) << "they would overtake the update";
  client_ = 6;
  EXPECT_EQ(pulled(list), before) << "others do not wait";
  client_ = 5;
  const auto again =
      send(header(verb::rows_update, 2, naming::with_digest), body_of(list, naming::with_digest, floats(4, 1)));
  auto want = before;
  for (auto& w : want) w += 1;
  EXPECT_EQ(sink_.take().header.sequence, again);
  auto r = sink_.take();
  EXPECT_EQ(r.header.sequence, pull);
  EXPECT_EQ(r.numbers(), want);
  r = sink_.take();
  EXPECT_EQ(r.header.sequence, by_list);
  EXPECT_EQ(r.numbers(), want);

  const ids other{3, 4};
  EXPECT_EQ(rows(verb::rows_pull, other, naming::by_digest).result(), status::unknown_set);
  const auto held = send(header(verb::rows_pull, 2, naming::by_ids), body_of(list, naming::by_ids));
  EXPECT_TRUE(sink_.all.empty());
  net::request_header ping;
  ping.what = verb::ping;
  (void)send(ping, {});
  EXPECT_EQ(sink_.take().header.what, verb::ping);
  EXPECT_EQ(sink_.take().header.sequence, held) << "given up";
}

TEST_F(RowLists, TheLeastRecentlyUsedListsGoWhenTheirMemoryIsUsedUp) {
  server_options small;
  small.max_set_bytes = 3000;
  reset(small);
  std::vector<ids> lists;
  for (std::uint64_t i = 0; i < 4; ++i) lists.push_back(ids(40, i));
  for (const auto& l : lists) {
    (void)pulled(l, naming::with_digest);
    if (!l.empty() && l[0] != 0) {
      EXPECT_EQ(rows(verb::rows_pull, lists[0], naming::by_digest).result(), status::ok) << "it is used";
    }
  }
  EXPECT_EQ(rows(verb::rows_pull, lists[3], naming::by_digest).result(), status::ok);
  EXPECT_EQ(rows(verb::rows_pull, lists[1], naming::by_digest).result(), status::unknown_set);
}

TEST_F(RowLists, TheIdsOfALargeListComeInASecondFrame) {
  ids list(20'000);
  for (std::uint64_t i = 0; i < list.size(); ++i) list[i] = i * 3;
  const auto d = digest_of_ids(list);
  auto tail = shared_buffer::allocate(list.size() * 8);
  std::memcpy(tail.mutable_data(), list.data(), tail.size());
  const auto first = call(header(verb::rows_pull, list.size(), naming::with_digest), d, std::move(tail));
  ASSERT_EQ(first.result(), status::ok) << first.text();
  EXPECT_EQ(pulled(list, naming::by_digest), first.numbers());
  floats deltas(list.size() * 2, 1);
  auto values = shared_buffer::allocate(deltas.size() * sizeof(float));
  std::memcpy(values.mutable_data(), deltas.data(), values.size());
  EXPECT_EQ(call(header(verb::rows_update, list.size(), naming::by_digest), d, std::move(values)).result(), status::ok);
  auto want = first.numbers();
  for (auto& w : want) w += 1;
  EXPECT_EQ(pulled(list), want);
}

}  // namespace
}  // namespace paracel::srv
