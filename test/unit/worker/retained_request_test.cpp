// SPDX-License-Identifier: BSD-3-Clause
#include "client/retained_request.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "net/row_codec.hpp"

namespace paracel {
namespace {

using net::status;
using net::verb;
using bytes = std::vector<std::byte>;

std::vector<std::string> some_keys(int n) {
  std::vector<std::string> keys;
  for (int i = 0; i < n; ++i) keys.push_back("key_" + std::to_string(i));
  return keys;
}

retained_request multi(verb what, const std::vector<std::string>& keys) {
  retained_request r;
  r.header.what = what;
  r.header.count = static_cast<std::uint32_t>(keys.size());
  r.header.sequence = 7;
  r.header.flags = net::flag_staged;
  for (std::int64_t i = 0; i < std::ssize(keys); ++i)
    net::append_item(r.body, keys[static_cast<std::size_t>(i)], encoded<std::int64_t>(i).view());
  return r;
}

/// Items 0, 2, 4 ... and 1, 3, 5 ...
std::vector<std::vector<std::uint32_t>> halves(std::size_t n) {
  std::vector<std::vector<std::uint32_t>> of(2);
  for (std::uint32_t i = 0; i < n; ++i) of[i % 2].push_back(i);
  return of;
}

std::int64_t number(const value_view& v) { return decode<std::int64_t>(v); }

/// The reply of a server that adds 100 to a multi request.
request_part answered(const std::vector<std::uint32_t>& items, const net::request_header& h, const bytes& body) {
  request_part p;
  p.items = items;
  p.answered = true;
  p.header.result = status::ok;
  p.header.count = h.count;
  net::request_items asked(body, h.count);
  for (net::request_item i; asked.next(i);) {
    const encoded<std::int64_t> sum(number(i.value) + 100);
    net::append_item(p.reply, status::ok, 5, sum.view());
  }
  EXPECT_TRUE(asked.ok());
  return p;
}

TEST(KeptRequest, ManyKeysAreTakenApartAndTheirAnswersPutTogetherInTheirOrder) {
  const auto keys = some_keys(101);
  const auto whole = multi(verb::bupdate_multi, keys);
  const request_items_view items(whole);
  ASSERT_EQ(items.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(items.partition(i), partition_of(hash_key(keys[i])));
  std::vector<request_part> parts;
  for (const auto& half : halves(keys.size())) {
    net::request_header h;
    bytes body;
    items.write(half, h, body);
    EXPECT_EQ(h.what, verb::bupdate_multi);
    EXPECT_EQ(h.sequence, 7U);
    EXPECT_EQ(h.flags, net::flag_staged);
    EXPECT_EQ(h.count, half.size());
    EXPECT_EQ(h.body_bytes, body.size());
    parts.push_back(answered(half, h, body));
  }
  const auto all = merge(verb::bupdate_multi, items.size(), parts);
  EXPECT_EQ(all.header.count, keys.size());
  net::reply_items answers(all.body, all.header.count);
  std::int64_t i = 0;
  for (net::reply_item a; answers.next(a); ++i) {
    EXPECT_EQ(a.result, status::ok);
    EXPECT_EQ(a.version, 5U);
    EXPECT_EQ(number(a.value), i + 100);
  }
  EXPECT_TRUE(answers.ok());
  EXPECT_EQ(i, 101);
}

TEST(KeptRequest, APartThatFailsFailsItsKeysAndNoOthers) {
  const auto whole = multi(verb::update_multi, some_keys(4));
  const request_items_view items(whole);
  net::request_header h;
  bytes body;
  items.write(std::vector<std::uint32_t>{0, 2}, h, body);
  auto good = answered({0, 2}, h, body);
  request_part bad;
  bad.items = {1, 3};
  bad.header.result = status::unknown_function;
  const auto text = net::bytes_of("register it first");
  bad.reply.assign(text.begin(), text.end());
  const auto all = merge(verb::update_multi, 4, std::vector{good, bad});
  EXPECT_EQ(all.header.result, status::ok);
  net::reply_items answers(all.body, all.header.count);
  net::reply_item a;
  for (int i = 0; answers.next(a); ++i) {
    EXPECT_EQ(a.result, i % 2 == 0 ? status::ok : status::unknown_function);
    if (i % 2 == 1) {
      EXPECT_EQ(net::text_of(a.value.bytes), "register it first");
    }
  }
}

retained_request on_set(verb what, const std::vector<std::string>& keys) {
  auto set = std::make_shared<sharded_keys>();
  set->keys = keys;
  for (std::uint32_t i = 0; i < keys.size(); ++i) set->order.push_back(static_cast<std::uint32_t>(keys.size()) - 1 - i);
  set->parts.push_back({0, 0, 3, {}});
  set->parts.push_back({1, 3, static_cast<std::uint32_t>(keys.size()), {}});
  retained_request r;
  r.header.what = what;
  r.header.key_bytes = 16;  // the digest
  r.header.count = static_cast<std::uint32_t>(keys.size()) - 3;
  r.body.resize(16);
  r.set = set;
  r.set_part = 1;
  return r;
}

TEST(KeptRequest, ARequestOnAKeySetBecomesOneOfItsKeys) {
  const auto keys = some_keys(8);
  auto whole = on_set(verb::set_update, keys);
  whole.header.tag = value_tag::i64;
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(&i);
    whole.body.insert(whole.body.end(), at, at + sizeof i);
  }
  const request_items_view items(whole);
  ASSERT_EQ(items.size(), 5U);
  net::request_header h;
  bytes body;
  items.write(std::vector<std::uint32_t>{1, 4}, h, body);
  EXPECT_EQ(h.what, verb::update_multi);
  EXPECT_EQ(h.tag, value_tag::none);
  EXPECT_EQ(h.key_bytes, 0U);
  net::request_items written(body, h.count);
  net::request_item i;
  ASSERT_TRUE(written.next(i));
  EXPECT_EQ(i.key, "key_3") << "the set's order is backwards, and the part begins with key_4";
  EXPECT_EQ(number(i.value), 1);
  ASSERT_TRUE(written.next(i));
  EXPECT_EQ(i.key, "key_0");
  EXPECT_EQ(number(i.value), 4);
  EXPECT_TRUE(written.ok());
}

TEST(KeptRequest, ValuesOfAnyTypesAndNoneComeFromASetToo) {
  auto whole = on_set(verb::set_push, some_keys(5));
  net::append_item(whole.body, "", encoded<std::int64_t>(1).view());
  const std::string text = "text";
  net::append_item(whole.body, "", encoded<std::string>(text).view());
  net::request_header h;
  bytes body;
  request_items_view(whole).write(std::vector<std::uint32_t>{0, 1}, h, body);
  EXPECT_EQ(h.what, verb::push_multi);
  net::request_items written(body, h.count);
  net::request_item i;
  ASSERT_TRUE(written.next(i));
  EXPECT_EQ(i.value.tag, value_tag::i64);
  ASSERT_TRUE(written.next(i));
  EXPECT_EQ(i.value.tag, value_tag::packed);

  const auto pull = on_set(verb::set_pull, some_keys(5));
  const request_items_view none(pull);
  none.write(std::vector<std::uint32_t>{1}, h, body);
  EXPECT_EQ(h.what, verb::pull_multi);
  EXPECT_EQ(body.size(), net::request_item_bytes + 5);
}

retained_request rows_request(verb what, std::uint32_t n, bool named, std::size_t row_bytes) {
  retained_request r;
  r.header.what = what;
  r.header.count = n;
  r.header.tag = value_tag::f32;
  if (named) r.header.flags = net::flag_named;
  const auto put = [&](const void* from, std::size_t size) {
    const auto* at = static_cast<const std::byte*>(from);
    r.body.insert(r.body.end(), at, at + size);
  };
  for (std::uint32_t i = 0; named && i < n; ++i) {
    const std::uint32_t length = 1 + i;
    put(&length, sizeof length);
  }
  for (std::uint64_t i = 0; i < n; ++i) {
    if (named) put(std::string(i + 1, static_cast<char>('a' + i)).data(), i + 1);
    else put(&i, sizeof i);
  }
  if (named) r.body.resize((r.body.size() + 7) / 8 * 8);
  for (std::uint32_t i = 0; i < n; ++i) r.body.resize(r.body.size() + row_bytes, static_cast<std::byte>(i));
  return r;
}

TEST(KeptRequest, RowsAreTakenApartByIdAndByName) {
  for (const bool named : {false, true}) {
    for (const std::size_t row_bytes : {0U, 12U}) {
      const auto whole = rows_request(row_bytes == 0 ? verb::rows_pull : verb::rows_update, 7, named, row_bytes);
      const request_items_view items(whole);
      ASSERT_EQ(items.size(), 7U);
      net::request_header h;
      bytes body;
      for (const auto& half : halves(7)) {
        items.write(half, h, body);
        net::rows_view r;
        ASSERT_STREQ(net::decode(body, h.count, named, row_bytes, r), nullptr);
        std::size_t text = 0;
        for (std::size_t k = 0; k < half.size(); ++k) {
          const auto i = half[k];
          auto hash = named ? std::uint64_t{0} : net::hash_row(r.id(k));
          if (named) {
            const auto name = r.texts.substr(text, r.length(k));
            text += name.size();
            EXPECT_EQ(name, std::string(i + 1, static_cast<char>('a' + i)));
            hash = net::hash_row(name);
          } else {
            EXPECT_EQ(r.id(k), i);
          }
          EXPECT_EQ(items.partition(i), partition_of(hash));
          if (row_bytes != 0) {
            EXPECT_EQ(r.values[k * row_bytes + 11], static_cast<std::byte>(i));
          }
        }
      }
    }
  }
}

/// Each half has its ids, not as gaps, and its values; the bytes of row i are i.
void expect_staged_rows(const request_items_view& items, const std::vector<std::uint64_t>& ids, std::size_t row_bytes) {
  net::request_header h;
  bytes body;
  for (const auto& half : halves(ids.size())) {
    items.write(half, h, body);
    EXPECT_EQ(h.flags, net::flag_staged);
    EXPECT_EQ(h.key_bytes, 0U);
    net::rows_view r;
    ASSERT_STREQ(net::decode(body, h.count, false, row_bytes, r), nullptr);
    for (std::size_t k = 0; k < half.size(); ++k) {
      EXPECT_EQ(r.id(k), ids[half[k]]);
      EXPECT_EQ(items.partition(half[k]), partition_of(net::hash_row(r.id(k))));
      if (row_bytes != 0) {
        EXPECT_EQ(r.values[k * row_bytes], static_cast<std::byte>(half[k]));
      }
    }
  }
}

TEST(KeptRequest, RowsWhoseIdsAreGapsAreTakenApartWithTheirIds) {
  for (const std::size_t row_bytes : {0U, 12U}) {
    const std::vector<std::uint64_t> ids{7, 7, 1000, 1001, 70'000, 70'001, 70'002};
    retained_request whole;
    whole.header.what = row_bytes == 0 ? verb::rows_pull : verb::rows_update;
    whole.header.flags = net::flag_gaps | net::flag_staged;
    whole.header.count = 7;
    whole.body.resize(net::gaps_bytes(7, 4));
    net::write_gaps(whole.body.data(), 7, 4, [&](std::size_t k) { return ids[k]; });
    for (std::uint8_t i = 0; i < 7; ++i) whole.body.resize(whole.body.size() + row_bytes, static_cast<std::byte>(i));
    const request_items_view items(whole);
    ASSERT_EQ(items.size(), 7U);
    expect_staged_rows(items, ids, row_bytes);
    whole.body[8] = std::byte{3};
    EXPECT_THROW(request_items_view{whole}, protocol_error);
    whole.body.resize(8);
    EXPECT_THROW(request_items_view{whole}, protocol_error);
  }
}

TEST(KeptRequest, RowsInATailAreTakenApartToo) {
  auto whole = rows_request(verb::rows_push, 4, false, 8);
  whole.tail = shared_buffer::allocate(whole.body.size());
  std::memcpy(whole.tail.mutable_data(), whole.body.data(), whole.body.size());
  whole.header.tail_bytes = whole.body.size();
  whole.body.clear();
  net::request_header h;
  bytes body;
  request_items_view(whole).write(std::vector<std::uint32_t>{3}, h, body);
  EXPECT_EQ(h.tail_bytes, 0U);
  net::rows_view r;
  ASSERT_STREQ(net::decode(body, 1, false, 8, r), nullptr);
  EXPECT_EQ(r.id(0), 3U);
}

TEST(KeptRequest, RowsNamedByAListAreTakenApartWithTheirIds) {
  for (const std::size_t row_bytes : {0U, 12U}) {
    retained_request whole;
    whole.header.what = row_bytes == 0 ? verb::rows_pull : verb::rows_update;
    whole.header.flags = net::flag_listed | net::flag_staged;
    whole.header.count = 5;
    whole.header.key_bytes = 16;
    whole.body.resize(16);
    for (std::uint8_t i = 0; i < 5; ++i) whole.body.resize(whole.body.size() + row_bytes, static_cast<std::byte>(i));
    auto list = std::make_shared<listed_rows>();
    list->ids = {100, 7, 101, 102, 8, 103, 104};
    list->sent = {7, 8, 100, 101, 102, 103, 104};
    list->parts = {{.channel = 0, .first = 0, .count = 2}, {.channel = 1, .first = 2, .count = 5}};
    whole.rows = list;
    whole.set_part = 1;
    const request_items_view items(whole);
    ASSERT_EQ(items.size(), 5U);
    expect_staged_rows(items, {100, 101, 102, 103, 104}, row_bytes);
    whole.body.pop_back();
    EXPECT_THROW(request_items_view{whole}, protocol_error);
  }
}

TEST(KeptRequest, PulledRowsComeInTheOrderOfTheRequestAndCountsAdd) {
  std::vector<request_part> parts(2);
  parts[0].items = {1, 2};
  parts[0].reply = {std::byte{1}, std::byte{1}, std::byte{2}, std::byte{2}};
  parts[0].header.count = 2;
  parts[1].items = {0};
  parts[1].reply = {std::byte{0}, std::byte{0}};
  parts[1].header.count = 1;
  const auto pulled = merge(verb::rows_pull, 3, parts);
  EXPECT_EQ(pulled.body, (bytes{std::byte{0}, std::byte{0}, std::byte{1}, std::byte{1}, std::byte{2}, std::byte{2}}));
  EXPECT_EQ(merge(verb::rows_remove, 3, parts).header.count, 3U);
  EXPECT_TRUE(merge(verb::rows_update, 3, parts).body.empty());
  parts[1].header.result = status::plugin_failed;
  EXPECT_EQ(merge(verb::rows_pull, 3, parts).header.result, status::plugin_failed);
}

TEST(KeptRequest, AnAnswerThatDoesNotFitIsAnError) {
  std::vector<request_part> parts(1);
  parts[0].items = {0, 1};
  parts[0].header.count = 1;
  net::append_item(parts[0].reply, status::ok, 1, {});
  EXPECT_THROW((void)merge(verb::pull_multi, 2, parts), protocol_error);
  parts[0].reply = bytes(3);
  EXPECT_THROW((void)merge(verb::rows_pull, 2, parts), protocol_error);
}

}  // namespace
}  // namespace paracel
