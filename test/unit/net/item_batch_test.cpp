// SPDX-License-Identifier: BSD-3-Clause
//
// Items of requests read in batches.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "net/protocol.hpp"

namespace paracel::net {
namespace {

using bytes = std::vector<std::byte>;

struct listed {
  std::vector<std::string> keys;
  std::vector<std::pair<value_tag, std::string>> values;
  bool ok = false;
  friend bool operator==(const listed&, const listed&) = default;
  void add(std::string_view key, const value_view& v) {
    keys.emplace_back(key);
    values.emplace_back(v.tag, text_of(v.bytes));
  }
};

listed one_by_one(const bytes& body, std::uint32_t count) {
  listed all;
  request_items items(body, count);
  for (request_item i; items.next(i);) all.add(i.key, i.value);
  all.ok = items.ok();
  return all;
}

listed in_batches(const bytes& body, std::uint32_t count, std::size_t batch) {
  listed all;
  request_items items(body, count);
  std::vector<const std::byte*> places(batch);
  for (std::size_t n = batch; n == batch;) {
    n = items.next(places);
    for (std::size_t i = 0; i < n; ++i) all.add(item_key(places[i]), item_value(places[i]));
  }
  EXPECT_EQ(items.next(places), 0U) << "it stays at the end";
  all.ok = items.ok();
  return all;
}

/// Runs of items that look alike, as in a list of keys with numbers, between others.
bytes random_items(std::mt19937& random, std::uint32_t count) {
  const auto below = [&](unsigned n) { return random() % n; };
  const value_tag tags[] = {value_tag::none, value_tag::f32, value_tag::f64, value_tag::f64_array, value_tag::packed};
  bytes body;
  std::string key = "k";
  std::string value;
  auto tag = value_tag::none;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (below(4) == 0) key = std::string(below(20), 'k');
    if (below(8) == 0) value = std::string(below(3) * 4, 'v');
    if (below(8) == 0) tag = tags[below(5)];
    if (!key.empty()) key.back() = static_cast<char>('a' + below(26));
    append_item(body, key, {tag, bytes_of(value)});
  }
  return body;
}

TEST(ItemBatches, HaveTheItemsThatComeOneByOne) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto count = static_cast<std::uint32_t>(random() % 70);
    const auto body = random_items(random, count);
    const auto wanted = one_by_one(body, count);
    ASSERT_TRUE(wanted.ok);
    ASSERT_EQ(wanted.keys.size(), count);
    for (const std::size_t batch : {1U, 3U, 32U, 100U}) EXPECT_EQ(in_batches(body, count, batch), wanted) << round;
    EXPECT_EQ(in_batches(body, count + 1, 32), one_by_one(body, count + 1)) << "too few bytes";
    if (count == 0) continue;
    EXPECT_EQ(in_batches(body, count - 1, 32), one_by_one(body, count - 1)) << "bytes are left over";
  }
}

TEST(ItemBatches, EndWhereAMalformedItemBegins) {
  std::mt19937 random(8);
  for (int round = 0; round < 20; ++round) {
    const auto body = random_items(random, 12);
    for (std::size_t at = 0; at < body.size(); ++at) {
      const bytes cut(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_EQ(in_batches(cut, 12, 5), one_by_one(cut, 12)) << at;
      auto changed = body;
      changed[at] ^= static_cast<std::byte>(1U << random() % 8);
      EXPECT_EQ(in_batches(changed, 12, 5), one_by_one(changed, 12)) << at;
    }
  }
}

}  // namespace
}  // namespace paracel::net
