// SPDX-License-Identifier: BSD-3-Clause
//
// Requests of many keys that may be answered with the values alone, compared with the same requests answered by items:
// both do the same to the keys.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "net/protocol.hpp"
#include "test/support/shard_test.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;

class UniformReplies : public test::shard_test {
 protected:
  using outcomes = std::vector<std::pair<status, std::vector<std::byte>>>;
  struct history {
    std::vector<outcomes> answers;
    std::vector<std::uint64_t> versions;  // of all keys, after each request
    std::size_t uniform = 0;              // how many replies were
    std::size_t failed = 0;               // items
  };

  outcomes of(const answer& a, std::size_t count, verb what, history& h) {
    if ((a.header.flags & net::reply_uniform) == 0) {
      outcomes all;
      for (auto& i : a.items()) {
        if (i.result != status::ok) {
          i.value.clear();  // a text
          ++h.failed;
        }
        all.emplace_back(i.result, i.value);
      }
      return all;
    }
    ++h.uniform;
    outcomes all(count, {status::ok, {}});
    if (what != verb::pull_multi && what != verb::bupdate_multi) return all;
    const auto each = a.body.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* from = a.body.data() + i * each;
      all[i].second.assign(from, from + each);
    }
    return all;
  }

  /// Random lists: of keys of one length or of many, with duplicates; of all keys, or of those that exist and have
  /// values of one size.
  history run(unsigned threads, unsigned shard, unsigned seed, std::uint16_t flags) {
    srv::server_options o;
    o.threads = threads;
    reset(o);
    std::mt19937 random(seed);
    std::vector<std::string> keys;
    for (int i = 0; keys.size() < 300; ++i) {
      auto key = std::to_string(i) + std::string(keys.size() % 3 == 0 ? keys.size() % 40 : 0, '.');
      if (partition_of(hash_key(key)) % threads == shard) keys.push_back(std::move(key));
    }
    const verb verbs[] = {verb::pull_multi, verb::update_multi, verb::bupdate_multi, verb::push_multi};
    history h;
    for (int round = 0; round < 120; ++round) {
      const auto what = verbs[random() % 4];
      const std::size_t n = 1 + random() % 150;
      const auto pool = round < 4 || random() % 4 == 0 ? keys.size() : 200;  // the first ones are pushed at the start
      const auto sizes = random() % 16 == 0 ? 2 : 1;
      std::vector<std::vector<double>> values(n);
      std::vector<std::pair<std::string, value_view>> items;
      for (std::size_t i = 0; i < n; ++i) {
        values[i].assign(1 + random() % sizes, static_cast<double>(random() % 100));
        const auto& key = keys[round == 0 ? i : random() % pool];
        items.emplace_back(key, what == verb::pull_multi ? value_view{} : view(values[i]));
      }
      h.answers.push_back(of(multi(what, items, {.flags = flags, .shard = shard}), n, what, h));
      if (round == 3 || round % 40 == 0) {  // all of those have one size again
        values.assign(200, {1.0});
        items.clear();
        for (std::size_t i = 0; i < 200; ++i) items.emplace_back(keys[i], view(values[i]));
        h.answers.push_back(of(multi(verb::push_multi, items, {.flags = flags, .shard = shard}), 200, what, h));
      }
      items.clear();
      for (const auto& key : keys) items.emplace_back(key, value_view{});
      for (const auto& i : multi(verb::pull_multi, items, {.shard = shard}).items()) h.versions.push_back(i.version);
    }
    return h;
  }
};

TEST_F(UniformReplies, StandForTheItemsOfTheSameRequests) {
  for (const auto& [threads, shard] : {std::pair(1U, 0U), std::pair(3U, 1U)}) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      const auto items = run(threads, shard, seed, 0);
      const auto values = run(threads, shard, seed, net::flag_uniform_reply);
      EXPECT_EQ(values.answers, items.answers) << threads << ' ' << seed;
      EXPECT_EQ(values.versions, items.versions) << threads << ' ' << seed;
      EXPECT_EQ(items.uniform, 0U);
      EXPECT_GT(values.uniform, 20U);
      EXPECT_GT(items.failed, 20U) << "missing keys, and deltas of another size";
    }
  }
}

TEST_F(UniformReplies, AKeyOfAnotherShardIsRefusedAndTheOthersAreServed) {
  srv::server_options o;
  o.threads = 3;
  reset(o);
  std::vector<std::pair<std::string, value_view>> mine;
  std::string stranger;
  const double one = 1;
  for (int i = 0; mine.size() < 60 || stranger.empty(); ++i) {
    const auto key = std::to_string(i);
    if (partition_of(hash_key(key)) % 3 == 1) mine.emplace_back(key, view(one));
    else stranger = key;
  }
  const test::shard_request to{.flags = net::flag_uniform_reply, .shard = 1};
  multi(verb::push_multi, mine, to);
  EXPECT_NE(multi(verb::update_multi, mine, to).header.flags & net::reply_uniform, 0);
  auto some = mine;
  some[40].first = stranger;
  const auto items = multi(verb::update_multi, some, to).items();
  for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i].result, i == 40 ? status::wrong_owner : status::ok);
}

}  // namespace
}  // namespace paracel::srv
