// SPDX-License-Identifier: BSD-3-Clause
#include "net/protocol.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/error.hpp>

#include "net/job_key.hpp"
#include "test/support/paths.hpp"

namespace paracel::net {
namespace {

using bytes = std::vector<std::byte>;

std::string hex(std::span<const std::byte> b) {
  std::string text;
  for (const auto x : b) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(x) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(x) & 15];
  }
  return text;
}

template <class Header>
bytes frame_of(const Header& h, std::span<const std::byte> body) {
  constexpr auto front = std::is_same_v<Header, request_header> ? request_header_bytes : reply_header_bytes;
  bytes f(front);
  encode(h, std::span<std::byte, front>(f.data(), front));
  f.insert(f.end(), body.begin(), body.end());
  return f;
}

request_header full_request() {
  request_header h;
  h.what = verb::update;
  h.flags = flag_staged;
  h.job = 0x0123456789abcdefU;
  h.client = 0x1122334455667788U;
  h.sequence = 0x0102030405060708U;
  h.low_watermark = 0x0102030405060700U;
  h.rank = 3;
  h.clock = 41;
  h.epoch = 7;
  h.partition = 1685;  // of "theta"
  h.tag = value_tag::f64_array;
  h.function = 0xa1b2c3d4e5f60718U;
  h.table = 5;
  h.credit = 0x00100000;
  h.deadline_ms = 30000;
  h.count = 1;
  h.key_bytes = 5;
  h.body_bytes = 5 + 16;
  h.tail_bytes = 0;
  return h;
}

reply_header full_reply() {
  reply_header h;
  h.what = verb::pull;
  h.result = status::not_found;
  h.sequence = 0x0102030405060708U;
  h.value_version = 0x1112131415161718U;
  h.server = 0x2122232425262728U;
  h.clock = 40;
  h.epoch = 7;
  h.count = 2;
  h.body_bytes = 3;
  h.tail_bytes = 0x0000000100000000U;
  h.tag = value_tag::f32_array;
  h.order = instruction::shutdown;
  h.credit = 0x01020304;
  return h;
}

// The two headers, as drawn in src/net/README.md, written by hand. Changing any byte requires a new protocol version.
TEST(Protocol, ARequestHasTheseBytes) {
  request_bytes out;
  encode(full_request(), out);
  EXPECT_EQ(hex(out),
            "50524351"
            "01"
            "03"
            "0100"              // PRCQ, version, verb update, flags
            "efcdab8967452301"  // job
            "8877665544332211"  // client
            "0807060504030201"  // sequence
            "0007060504030201"  // low watermark
            "03000000"
            "29000000"  // rank, clock
            "07000000"
            "9506"
            "14"
            "00"                // epoch, partition, tag, zero
            "1807f6e5d4c3b2a1"  // function
            "05000000"
            "00001000"  // table, credit
            "30750000"
            "01000000"  // deadline, count
            "05000000"
            "15000000"            // key bytes, body bytes
            "0000000000000000");  // tail bytes
}

TEST(Protocol, TheExampleInTheReadmeIsThatFrame) {
  std::ifstream file(test::source_folder() + "/src/net/README.md");
  std::string digits;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("    ")) continue;
    for (const char c : line) {
      if (c != ' ') digits += c;
    }
  }
  request_bytes out;
  encode(full_request(), out);
  EXPECT_NE(digits.find(hex(out) + "theta"), std::string::npos);
}

TEST(Protocol, AReplyHasTheseBytes) {
  reply_bytes out;
  encode(full_reply(), out);
  EXPECT_EQ(hex(out),
            "50524352"
            "01"
            "01"
            "0100"              // PRCR, version, verb pull, status
            "0807060504030201"  // sequence
            "1817161514131211"  // value version
            "2827262524232221"  // server
            "28000000"
            "07000000"  // clock, epoch
            "02000000"
            "03000000"          // count, body bytes
            "0000000001000000"  // tail bytes
            "13"
            "02"
            "0000"
            "04030201");  // tag, instruction, flags, credit
}

TEST(Protocol, ItemsHaveTheseBytes) {
  bytes body;
  const std::int32_t number = 7;
  append_item(body, "key", {value_tag::i32, std::as_bytes(std::span(&number, 1))});
  EXPECT_EQ(hex(body),
            "03000000"
            "04000000"
            "01"
            "000000"
            "6b6579"
            "07000000");
  body.clear();
  append_item(body, status::type_mismatch, 0x0102030405060708U, {value_tag::packed, bytes_of("\xc0")});
  EXPECT_EQ(hex(body),
            "01000000"
            "0f"
            "00"
            "0200"
            "0807060504030201"
            "c0");
}

// Every number of the wire format, so that an insertion in the middle of an enum is detected.
TEST(Protocol, TheNumbersOfVerbsStatusesAndTagsAreFixed) {
  std::ostringstream all;
  for (int i = 0; i < 256; ++i) {
    const std::string name = name_of(static_cast<verb>(i));
    if (name != "unknown") all << i << ' ' << name << ' ';
  }
  EXPECT_EQ(all.str(),
            "0 none 1 pull 2 push 3 update 4 bupdate 5 contains 6 remove 7 update_default 8 cas 9 pull_at 10 update_at "
            "16 pull_multi 17 push_multi 18 update_multi 19 bupdate_multi 20 contains_multi 21 remove_multi "
            "22 update_default_multi 24 pull_at_multi 25 update_at_multi 32 clear 33 register_update "
            "34 register_bupdate 35 register_filter 36 scan 37 top_k 38 reduce 39 remove_if 40 set_prepare 41 set_pull "
            "42 set_push 43 set_update 44 set_bupdate 48 clock_tick 49 clock_wait 64 proxy 65 ping 66 stats 67 stop "
            "80 join 81 heartbeat 82 progress 83 leave 84 abort 85 collective 86 watch 87 report_death 88 resize "
            "89 find_worker 90 message 91 tell 92 take_commands 93 reserve 96 table_open 97 rows_pull 98 rows_push "
            "99 rows_update 100 rows_remove 101 "
            "rows_scan 104 subscribe 105 "
            "clock_moved "
            "106 replicate 107 handover 108 checkpoint 109 fence 110 fold ");
  std::ostringstream statuses;
  for (int i = 0; i < 65536; ++i) {
    const std::string name = name_of(static_cast<status>(i));
    if (name != "unknown") statuses << i << ' ' << name << ' ';
  }
  EXPECT_EQ(statuses.str(),
            "0 ok 1 not_found 2 type_mismatch 3 unknown_function 4 plugin_failed 5 bad_request 6 wrong_owner "
            "7 stale_epoch 8 too_large 9 deadline_exceeded 10 job_ended 11 wrong_job 12 internal 13 conflict "
            "14 unknown_set 15 out_of_memory 16 expired 17 connection_reset ");
  std::ostringstream tags;
  for (int i = 0; i < 256; ++i) {
    const auto tag = static_cast<value_tag>(i);
    if (paracel::is_known(tag)) tags << i << ' ' << paracel::name_of(tag) << ' ';
  }
  EXPECT_EQ(tags.str(),
            "0 none 1 i32 2 i64 3 f32 4 f64 15 packed 17 i32 array 18 i64 array 19 f32 array 20 f64 array ");
}

TEST(Protocol, ARequestSurvivesTheWayThroughAFrame) {
  const auto h = full_request();
  const std::string body =
      "theta"
      "0123456789abcdef";
  const auto frame = frame_of(h, bytes_of(body));
  request_view v;
  ASSERT_STREQ(decode(frame, 0, v), nullptr);
  EXPECT_EQ(v.key(), "theta");
  EXPECT_EQ(text_of(v.payload()), "0123456789abcdef");
  EXPECT_EQ(v.body.data(), frame.data() + request_header_bytes) << "views, not copies";
  EXPECT_EQ(frame_of(v.header, v.body), frame);
  EXPECT_EQ(v.header.what, h.what);
  EXPECT_EQ(v.header.job, h.job);
  EXPECT_EQ(v.header.client, h.client);
  EXPECT_EQ(v.header.sequence, h.sequence);
  EXPECT_EQ(v.header.low_watermark, h.low_watermark);
  EXPECT_EQ(v.header.partition, h.partition);
  EXPECT_EQ(v.header.function, h.function);
  EXPECT_EQ(v.header.deadline_ms, h.deadline_ms);
}

TEST(Protocol, AReplySurvivesTheWayThroughAFrame) {
  const auto h = full_reply();
  const auto frame = frame_of(h, bytes_of("abc"));
  reply_view v;
  ASSERT_STREQ(decode(frame, std::size_t{1} << 32, v), nullptr);
  EXPECT_EQ(text_of(v.body), "abc");
  EXPECT_EQ(frame_of(v.header, v.body), frame);
  EXPECT_EQ(v.header.result, status::not_found);
  EXPECT_EQ(v.header.value_version, h.value_version);
  EXPECT_EQ(v.header.server, h.server);
  EXPECT_EQ(v.header.order, instruction::shutdown);
}

TEST(Protocol, AFrameMayLieAtAnyAlignment) {
  const auto frame = frame_of(full_request(), bytes_of("theta0123456789abcdef"));
  for (std::size_t shift = 0; shift < 8; ++shift) {
    bytes shifted(shift);
    shifted.insert(shifted.end(), frame.begin(), frame.end());
    request_view v;
    EXPECT_EQ(decode(std::span(shifted).subspan(shift), 0, v), nullptr);
    EXPECT_EQ(v.key(), "theta");
  }
}

TEST(Protocol, WithAKeyARequestCarriesTheJobOnlyForThoseWhoHaveIt) {
  request_header h;
  h.what = verb::ping;
  h.job = 0x00c0ffee12345678U;
  request_bytes without;
  encode(h, without);
  set_job_key(0x0123456789abcdefU);
  request_bytes with;
  encode(h, with);
  request_view own;
  const char* problem = decode(with, 0, own);
  request_view foreign;
  const char* problem_there = decode(without, 0, foreign);
  set_job_key(0);
  EXPECT_STREQ(problem, nullptr);
  EXPECT_STREQ(problem_there, nullptr);
  EXPECT_EQ(own.header.job, h.job);
  EXPECT_NE(foreign.header.job, h.job);
  request_view outside;
  EXPECT_STREQ(decode(with, 0, outside), nullptr);
  EXPECT_EQ(outside.header.job, h.job ^ 0x0123456789abcdefU);
}

TEST(Protocol, EveryTruncationOfARequestIsRefused) {
  const auto frame = frame_of(full_request(), bytes_of("theta0123456789abcdef"));
  for (std::size_t n = 0; n < frame.size(); ++n) {
    const bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(n));  // an exact copy, so that reads out
                                                                                     // of bounds are detected
    request_view v;
    EXPECT_NE(decode(cut, 0, v), nullptr) << n;
  }
  auto longer = frame;
  longer.push_back(std::byte{0});
  request_view v;
  EXPECT_NE(decode(longer, 0, v), nullptr);
}

TEST(Protocol, EveryTruncationOfAReplyIsRefused) {
  auto h = full_reply();
  h.tail_bytes = 0;
  const auto frame = frame_of(h, bytes_of("abc"));
  for (std::size_t n = 0; n < frame.size(); ++n) {
    const bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(n));
    reply_view v;
    EXPECT_NE(decode(cut, 0, v), nullptr) << n;
  }
}

/// Decodes `full_request` after one modification.
template <class Change>
std::string refusal(Change change) {
  auto h = full_request();
  change(h);
  request_view v;
  const char* why = decode(frame_of(h, bytes_of("theta0123456789abcdef")), 0, v);
  return why == nullptr ? "accepted" : why;
}

TEST(Protocol, ARequestWithOneWrongFieldIsRefusedWithTheReason) {
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_EQ(refusal([](auto& h) { h.what = verb::none; }), "unknown verb");
  EXPECT_EQ(refusal([](auto& h) { h.what = static_cast<verb>(11); }), "unknown verb");
  EXPECT_EQ(refusal([](auto& h) { h.what = static_cast<verb>(255); }), "unknown verb");
  EXPECT_EQ(refusal([](auto& h) { h.flags = 8192; }), "unknown request flag");
  EXPECT_EQ(refusal([](auto& h) { h.tag = static_cast<value_tag>(5); }), "unknown type tag in the request");
  EXPECT_EQ(refusal([](auto& h) { h.partition = 16384; }), "no such partition");
  EXPECT_EQ(refusal([](auto& h) { h.partition = 16383; }), "accepted");
  EXPECT_EQ(refusal([](auto& h) { h.partition = any_partition; }), "accepted");
  EXPECT_EQ(refusal([](auto& h) { h.body_bytes = 20; }), "body length of the request differs from its frame");
  EXPECT_EQ(refusal([](auto& h) { h.body_bytes = 0xffffffff; }), "body length of the request differs from its frame");
  EXPECT_EQ(refusal([](auto& h) { h.tail_bytes = 1; }), "tail length of the request differs from its frame");
  EXPECT_EQ(refusal([](auto& h) { h.key_bytes = 21; }), "accepted");
  EXPECT_EQ(refusal([](auto& h) { h.key_bytes = 22; }), "key longer than the body");
  EXPECT_EQ(refusal([](auto& h) { h.key_bytes = 0xffffffff; }), "key longer than 65535 bytes");
}

TEST(Protocol, AKeyOfTheGreatestLengthPassesAndOneByteMoreDoesNot) {
  auto h = full_request();
  std::string body(max_key_bytes + 1, 'k');
  h.key_bytes = max_key_bytes;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  request_view v;
  EXPECT_STREQ(decode(frame_of(h, bytes_of(body)), 0, v), nullptr);
  EXPECT_EQ(v.key().size(), max_key_bytes);
  h.key_bytes = max_key_bytes + 1;
  EXPECT_STREQ(decode(frame_of(h, bytes_of(body)), 0, v), "key longer than 65535 bytes");
}

TEST(Protocol, WrongMagicVersionAndReservedByteAreRefused) {
  const auto good = frame_of(full_request(), bytes_of("theta0123456789abcdef"));
  request_view v;
  for (std::size_t i = 0; i < 4; ++i) {
    auto bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_STREQ(decode(bad, 0, v), "not a request: wrong magic");
  }
  auto version = good;
  version[4] = std::byte{2};
  EXPECT_STREQ(decode(version, 0, v), "request of another protocol version");
  auto reserved = good;
  reserved[55] = std::byte{1};
  EXPECT_STREQ(decode(reserved, 0, v), "reserved byte of the request is not zero");
}

TEST(Protocol, ARefusedRequestStillTellsItsVerbAndSequence) {
  request_view v;
  auto h = full_request();
  h.body_bytes = 1;
  ASSERT_NE(decode(frame_of(h, bytes_of("theta0123456789abcdef")), 0, v), nullptr);
  EXPECT_EQ(v.header.sequence, h.sequence);
  EXPECT_EQ(v.header.what, verb::update);
  EXPECT_TRUE(v.body.empty());
  ASSERT_NE(decode(bytes(10), 0, v), nullptr);
  EXPECT_EQ(v.header.sequence, 0U) << "nothing of the request before is left";
}

TEST(Protocol, AReplyWithOneWrongFieldIsRefusedWithTheReason) {
  const auto said = [](auto change, std::size_t tail = 0) -> std::string {
    auto h = full_reply();
    h.tail_bytes = 0;
    change(h);
    reply_view v;
    const char* why = decode(frame_of(h, bytes_of("abc")), tail, v);
    return why == nullptr ? "accepted" : why;
  };
  EXPECT_EQ(said([](auto&) {}), "accepted");
  EXPECT_EQ(said([](auto& h) { h.what = verb::none; }), "accepted");  // the reply to an unreadable request
  EXPECT_EQ(said([](auto& h) { h.what = static_cast<verb>(120); }), "unknown verb");
  EXPECT_EQ(said([](auto& h) { h.result = static_cast<status>(18); }), "unknown status");
  EXPECT_EQ(said([](auto& h) { h.tag = static_cast<value_tag>(0x10); }), "unknown type tag in the reply");
  EXPECT_EQ(said([](auto& h) { h.order = static_cast<instruction>(4); }), "unknown instruction");
  EXPECT_EQ(said([](auto& h) { h.flags = 4; }), "unknown reply flag");
  EXPECT_EQ(said([](auto& h) { h.body_bytes = 4; }), "body length of the reply differs from its frame");
  EXPECT_EQ(said([](auto&) {}, 1), "tail length of the reply differs from its frame");
  EXPECT_EQ(said([](auto& h) {
              h.what = verb::pull_multi;
              h.count = 1;
            }),
            "more items announced than the body can hold");
  const auto request = frame_of(full_request(), bytes_of("theta0123456789abcdef"));
  reply_view v;
  EXPECT_STREQ(decode(request, 0, v), "not a reply: wrong magic");
}

TEST(Protocol, ItemsSurviveTheWayThroughABody) {
  const double d = 2.5;
  bytes body;
  append_item(body, "a", {value_tag::f64, std::as_bytes(std::span(&d, 1))});
  append_item(body, "");
  append_item(body, std::string(max_key_bytes, 'k'), {value_tag::packed, bytes_of("\xa1x")});
  request_items items(body, 3);
  request_item i;
  EXPECT_FALSE(items.ok());
  ASSERT_TRUE(items.next(i));
  EXPECT_EQ(i.key, "a");
  EXPECT_EQ(i.value.tag, value_tag::f64);
  EXPECT_EQ(i.value.bytes.size(), 8U);
  ASSERT_TRUE(items.next(i));
  EXPECT_EQ(i.key, "");
  EXPECT_EQ(i.value.tag, value_tag::none);
  ASSERT_TRUE(items.next(i));
  EXPECT_EQ(i.key.size(), max_key_bytes);
  EXPECT_EQ(text_of(i.value.bytes), "\xa1x");
  EXPECT_TRUE(items.ok());
  EXPECT_FALSE(items.next(i));
  EXPECT_TRUE(items.ok());
}

TEST(Protocol, ReplyItemsSurviveTheWayThroughABody) {
  bytes body;
  append_item(body, status::not_found, 0, {});
  append_item(body, status::ok, 77, {value_tag::packed, bytes_of("xyz")});
  reply_items items(body, 2);
  reply_item i;
  ASSERT_TRUE(items.next(i));
  EXPECT_EQ(i.result, status::not_found);
  ASSERT_TRUE(items.next(i));
  EXPECT_EQ(i.version, 77U);
  EXPECT_EQ(text_of(i.value.bytes), "xyz");
  EXPECT_TRUE(items.ok());
}

TEST(Protocol, AWrongCountOfItemsIsSeen) {
  bytes body;
  append_item(body, "a");
  append_item(body, "b");
  request_item i;
  request_items fewer(body, 1);
  ASSERT_TRUE(fewer.next(i));
  EXPECT_FALSE(fewer.next(i));
  EXPECT_FALSE(fewer.ok()) << "bytes are left over";
  request_items more(body, std::numeric_limits<std::uint32_t>::max());
  int n = 0;
  while (more.next(i)) ++n;
  EXPECT_EQ(n, 2);
  EXPECT_FALSE(more.ok());
  EXPECT_FALSE(more.next(i)) << "it stays at the end";
  request_items none({}, 0);
  EXPECT_FALSE(none.next(i));
  EXPECT_TRUE(none.ok());
}

TEST(Protocol, ACountThatTheBodyCannotHoldIsRefusedAtOnce) {
  bytes body;
  append_item(body, "a");
  request_header h;
  h.what = verb::pull_multi;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  request_view v;
  h.count = 1;
  EXPECT_STREQ(decode(frame_of(h, body), 0, v), nullptr);
  h.count = 2;
  EXPECT_STREQ(decode(frame_of(h, body), 0, v), "more items announced than the body can hold");
  reply_header answer;
  answer.what = verb::pull_multi;
  answer.count = 2;
  answer.body_bytes = h.body_bytes;
  reply_view r;
  EXPECT_STREQ(decode(frame_of(answer, body), 0, r), "more items announced than the body can hold");
  answer.flags = reply_uniform;
  EXPECT_STREQ(decode(frame_of(answer, body), 0, r), nullptr) << "it has no items";
  h.what = verb::collective;  // count has another meaning there
  EXPECT_STREQ(decode(frame_of(h, body), 0, v), nullptr);
}

TEST(Protocol, EveryTruncationOfItemsIsSeen) {
  const double d = 2.5;
  bytes requests;
  bytes replies;
  for (int n = 0; n < 2; ++n) {
    append_item(requests, "key", {value_tag::f64, std::as_bytes(std::span(&d, 1))});
    append_item(replies, status::ok, 1, {value_tag::f64, std::as_bytes(std::span(&d, 1))});
  }
  for (std::size_t n = 0; n < requests.size(); ++n) {
    const bytes cut(requests.begin(), requests.begin() + static_cast<std::ptrdiff_t>(n));
    request_items items(cut, 2);
    request_item i;
    while (items.next(i)) {
    }
    EXPECT_FALSE(items.ok()) << n;
  }
  for (std::size_t n = 0; n < replies.size(); ++n) {
    const bytes cut(replies.begin(), replies.begin() + static_cast<std::ptrdiff_t>(n));
    reply_items items(cut, 2);
    reply_item i;
    while (items.next(i)) {
    }
    EXPECT_FALSE(items.ok()) << n;
  }
}

TEST(Protocol, AnItemWithAWrongByteIsRefused) {
  bytes good;
  append_item(good, "key", {value_tag::packed, bytes_of("v")});
  const auto accepted = [](bytes b, std::size_t at, unsigned value) {
    b[at] = std::byte(value);
    request_items items(b, 1);
    request_item i;
    return items.next(i);
  };
  EXPECT_TRUE(accepted(good, 8, 0x0f));
  EXPECT_FALSE(accepted(good, 8, 0x10));  // tag
  for (std::size_t at = 9; at < 12; ++at) EXPECT_FALSE(accepted(good, at, 1)) << at;
  EXPECT_FALSE(accepted(good, 3, 0xff));  // key_bytes near 2^32: the sum with value_bytes must not wrap
  EXPECT_FALSE(accepted(good, 7, 0xff));  // value_bytes
  bytes reply;
  append_item(reply, status::ok, 1, {value_tag::packed, bytes_of("v")});
  const auto reply_accepted = [&](std::size_t at, unsigned value) {
    auto b = reply;
    b[at] = std::byte(value);
    reply_items items(b, 1);
    reply_item i;
    return items.next(i);
  };
  EXPECT_TRUE(reply_accepted(6, 12));
  EXPECT_FALSE(reply_accepted(6, 17));    // status
  EXPECT_FALSE(reply_accepted(5, 1));     // zero
  EXPECT_FALSE(reply_accepted(4, 0x15));  // tag
  EXPECT_FALSE(reply_accepted(3, 0xff));  // value_bytes
}

TEST(Protocol, AKeyOfAnItemIsLimitedBothWays) {
  bytes body;
  EXPECT_THROW(append_item(body, std::string(max_key_bytes + 1, 'k')), protocol_error);
  EXPECT_TRUE(body.empty());
  append_item(body, std::string(max_key_bytes, 'k'), {value_tag::packed, bytes_of("vv")});
  const std::uint32_t more = max_key_bytes + 1;
  std::memcpy(body.data(), &more, 4);
  const std::uint32_t less = 1;
  std::memcpy(body.data() + 4, &less, 4);  // the sum fits: only the key is too long
  request_items items(body, 1);
  request_item i;
  EXPECT_FALSE(items.next(i));
}

TEST(Protocol, FlippedBitsNeverReadBeyondTheFrame) {
  std::mt19937 random(1);
  bytes body;
  for (int n = 0; n < 5; ++n) append_item(body, "key" + std::to_string(n), {value_tag::packed, bytes_of("value")});
  auto h = full_request();
  h.what = verb::push_multi;
  h.key_bytes = 0;
  h.count = 5;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  const auto good = frame_of(h, body);
  std::size_t accepted = 0;
  for (int round = 0; round < 100000; ++round) {
    auto f = good;
    for (auto flips = 1 + random() % 4; flips > 0; --flips) {
      f[random() % f.size()] ^= std::byte(1U << random() % 8);
    }
    request_view v;
    if (decode(f, 0, v) != nullptr) continue;
    request_items items(v.payload(), v.header.count);
    request_item i;
    while (items.next(i)) {
      const auto* end = reinterpret_cast<const char*>(f.data() + f.size());
      ASSERT_LE(i.key.data() + i.key.size(), end);
      ASSERT_LE(reinterpret_cast<const char*>(i.value.bytes.data() + i.value.bytes.size()), end);
    }
    accepted += items.ok();
  }
  EXPECT_GT(accepted, 1000U);  // a flip in a sequence number or in a value is not detectable here
  EXPECT_LT(accepted, 90000U);
}

}  // namespace
}  // namespace paracel::net
