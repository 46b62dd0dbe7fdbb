// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/scan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "net/scan_codec.hpp"
#include "test/support/paths.hpp"

namespace paracel::srv {
namespace {

using namespace std::chrono_literals;
using net::status;
using net::verb;
using testing::HasSubstr;

value_view view(const double& d) { return {value_tag::f64, std::as_bytes(std::span(&d, 1))}; }
value_view view(const std::int64_t& d) { return {value_tag::i64, std::as_bytes(std::span(&d, 1))}; }
value_view view(const std::vector<double>& d) { return {value_tag::f64_array, std::as_bytes(std::span(d))}; }
value_view view(const std::string& text) { return {value_tag::packed, net::bytes_of(text)}; }

class quiet_host final : public scan_observer {
 public:
  bool fold_all_before(std::uint32_t clock, time_point) override {
    folded.push_back(clock);
    return folds_left-- <= 0;
  }
  status broken(std::string_view prefix, std::string& why) const override {
    if (broken_key.empty() || !broken_key.starts_with(prefix)) return status::ok;
    why = "it could not be folded";
    return status::plugin_failed;
  }
  void erasing(std::string_view key, std::uint64_t) override { forgotten.emplace_back(key); }
  void runs(const std::string* function) noexcept override {
    if (function != nullptr) ran = *function;
    running = function;
  }
  std::vector<std::uint32_t> folded;
  int folds_left = 0;
  std::string broken_key;
  std::vector<std::string> forgotten;
  std::string ran;
  const std::string* running = nullptr;
};

/// Fields of a request besides its cursor.
struct with {
  std::string prefix{};
  std::uint64_t filter = 0;
  std::uint32_t credit = 0;
  std::uint16_t flags = 0;
  std::uint32_t clock = net::no_clock;
};

class ScanTest : public testing::Test {
 protected:
  ScanTest() { reset({}, {.slice = 10s}); }  // a walk within one slice, however busy the machine is

  void reset(const shard_settings& s, scan_service::limits l = {}) {
    keys_.emplace(s, owned_);
    scans_.emplace(*keys_, plugins_, host_, l);
  }
  void put(const std::string& key, const value_view& value) { keys_->store(hash_key(key), key, value); }
  void erase(const std::string& key) { keys_->erase(hash_key(key), key); }
  std::uint64_t filter(const std::string& name) { return plugins_.load_filter("filters", name).id; }

  scan_answer send(verb what, const std::vector<std::byte>& payload, const with& w) {
    net::request_header h;
    h.what = what;
    h.function = w.filter;
    h.credit = w.credit;
    h.flags = w.flags;
    h.clock = w.clock;
    h.key_bytes = static_cast<std::uint32_t>(w.prefix.size());
    h.body_bytes = static_cast<std::uint32_t>(w.prefix.size() + payload.size());
    frame_.resize(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame_));
    const auto name = net::bytes_of(w.prefix);
    frame_.insert(frame_.end(), name.begin(), name.end());
    frame_.insert(frame_.end(), payload.begin(), payload.end());
    net::request_view request;
    EXPECT_EQ(net::decode(frame_, 0, request), nullptr);
    return scans_->handle(request);
  }
  template <class Request>
  scan_answer ask(verb what, const Request& r, const with& w = {}) {
    std::vector<std::byte> payload;
    append(payload, r);
    return send(what, payload, w);
  }
  /// Repeats the request until the end. `look` is called for every reply, `between` before each further request.
  template <class Request, class Look>
  int scan_all(verb what, Request r, const with& w, const Look& look, const std::function<void()>& between = nullptr) {
    int slices = 0;
    for (;;) {
      const auto a = ask(what, r, w);
      EXPECT_EQ(a.result, status::ok) << a.text;
      if (a.result != status::ok) return slices;
      ++slices;
      net::scan_reply at;
      EXPECT_EQ(decode(a.body, at), nullptr);
      look(a, at);
      if ((a.header.flags & net::reply_more) == 0) return slices;
      EXPECT_TRUE(at.next.partition > r.from.partition || at.next.position > r.from.position || !host_.folded.empty())
          << "every slice comes further";
      r.from = at.next;
      if (between) between();
    }
  }
  std::multimap<std::string, std::vector<std::byte>> everything(const with& w = {},
                                                                const std::function<void()>& between = nullptr,
                                                                int* slices = nullptr) {
    std::multimap<std::string, std::vector<std::byte>> all;
    const int n = scan_all(
        verb::scan, net::scan_request{}, w,
        [&](const scan_answer& a, const net::scan_reply& r) {
          net::request_items items(r.rest, a.header.count);
          for (net::request_item i; items.next(i);) {
            all.emplace(i.key, std::vector<std::byte>(i.value.bytes.begin(), i.value.bytes.end()));
          }
          EXPECT_TRUE(items.ok());
        },
        between);
    if (slices != nullptr) *slices = n;
    return all;
  }
  std::vector<std::string> names(const with& w) {
    std::vector<std::string> out;
    for (const auto& [key, value] : everything(w)) out.push_back(key);
    return out;
  }
  net::summary sums(net::reduce_request r = {}, const with& w = {}) {
    net::summary all;
    all.bins.resize(r.bins);
    scan_all(verb::reduce, r, w, [&](const scan_answer&, const net::scan_reply& at) {
      net::summary part;
      ASSERT_EQ(decode(at.rest, part), nullptr);
      all.merge(part);
    });
    return all;
  }
  std::vector<std::string> best(std::uint32_t k, const with& w = {}, std::uint64_t* skipped = nullptr) {
    std::vector<std::string> out;
    const auto a = ask(verb::top_k, net::top_k_request{{}, k}, w);
    EXPECT_EQ(a.result, status::ok) << a.text;
    EXPECT_EQ(a.header.flags & net::reply_more, 0);
    net::top_k_reply r;
    EXPECT_EQ(decode(a.body, r), nullptr);
    net::request_items items(r.items, a.header.count);
    for (net::request_item i; items.next(i);) out.emplace_back(i.key);
    EXPECT_TRUE(items.ok());
    if (skipped != nullptr) *skipped = r.skipped;
    return out;
  }

  std::atomic<const ownership*> owned_{nullptr};
  plugin_registry plugins_{{test::plugin_folder()}};
  quiet_host host_;
  std::optional<key_store> keys_;
  std::optional<scan_service> scans_;
  std::vector<std::byte> frame_;
};

// ---- cursors ------------------------------------------------------------------------------------------------------

TEST_F(ScanTest, AnEmptyShardIsOneEmptyAnswer) {
  int slices = 0;
  EXPECT_TRUE(everything({}, nullptr, &slices).empty());
  EXPECT_EQ(slices, 1);
}

TEST_F(ScanTest, EveryKeyAndValueComesExactlyOnceWhateverTheCreditAndTheSlice) {
  std::map<std::string, std::vector<std::byte>> model;
  std::mt19937 random(3);
  for (const std::uint32_t credit : {0U, 100U, 5000U, 200'000U}) {
    for (const auto slice : {0us, 4000us}) {
      reset({}, {.slice = slice});
      model.clear();
      for (int i = 0; i < 5000; ++i) {
        const auto key = "k" + std::to_string(i);
        const std::string value(random() % 50 == 0 ? 2000 : random() % 40, static_cast<char>(i));
        put(key, view(value));
        const auto bytes = net::bytes_of(value);
        model[key] = {bytes.begin(), bytes.end()};
      }
      int slices = 0;
      const auto all = everything({.credit = credit}, nullptr, &slices);
      EXPECT_TRUE(std::ranges::equal(all, model)) << credit;
      if (credit == 100 || slice == 0us) {
        EXPECT_GT(slices, 50);
      }
    }
  }
}

/// Keys that are inserted and removed between chunks: those that stay are returned once, the others at most as often as
/// they were inserted.
TEST_F(ScanTest, AKeyThatStaysIsMetExactlyOnceWhateverHappensBetweenTheChunks) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    // With 512 threads a shard has 32 partitions, which are large and are rehashed during the scan.
    const bool few = seed % 2 == 0;
    const shard_settings settings{.index = few ? 3U : 0U, .threads = few ? 512U : 1U};
    reset(settings, {.slice = 0us});
    const auto mine = [&](const std::string& key) {
      return partition_of(hash_key(key)) % settings.threads == settings.index;
    };
    std::vector<std::string> pool;
    for (int i = 0; pool.size() < 2500; ++i) {
      auto key = "key" + std::to_string(i);
      if (mine(key)) pool.push_back(std::move(key));
    }
    std::map<std::string, double> staying;
    std::map<std::string, int> passing;  // number of insertions
    std::vector<std::string> passing_now;
    const std::size_t begin_with = 300 + random() % 1000;
    for (std::size_t i = 0; i < begin_with; ++i) {
      const double value = i;
      put(pool[i], view(value));
      if (i % 2 == 0) staying[pool[i]] = value;
      else passing[pool[i]] = 1, passing_now.push_back(pool[i]);
    }
    const auto disturb = [&] {
      for (int n = 0; n < 60; ++n) {
        const auto what = random() % 3;
        if (what == 0 && !passing_now.empty()) {
          const auto at = random() % passing_now.size();
          erase(passing_now[at]);
          passing_now.erase(passing_now.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (what == 1) {
          const auto& key = pool[begin_with + random() % (pool.size() - begin_with)];
          if (std::ranges::find(passing_now, key) == passing_now.end()) {
            const double value = -1;
            put(key, view(value));
            ++passing[key];
            passing_now.push_back(key);
          }
        } else {
          // A value whose size changes is moved in the arena.
          const auto at = std::next(staying.begin(), static_cast<std::ptrdiff_t>(random() % staying.size()));
          put(at->first, view(std::vector<double>(1 + random() % 30, at->second)));
        }
      }
    };
    const auto all = everything({.credit = seed % 3 == 0 ? 400U : 0U}, disturb);
    for (const auto& [key, value] : staying) ASSERT_EQ(all.count(key), 1U) << key;
    for (const auto& [key, bytes] : all) {
      if (staying.contains(key)) {
        double first = 0;
        std::memcpy(&first, bytes.data(), sizeof first);
        ASSERT_EQ(first, staying[key]);
      } else {
        ASSERT_TRUE(passing.contains(key)) << key;
        ASSERT_LE(static_cast<int>(all.count(key)), passing[key]) << key;
      }
    }
  }
}

TEST_F(ScanTest, ALargePartitionComesInParts) {
  reset({.threads = 16384}, {.slice = 0us});
  int n = 0;
  for (int i = 0; n < 300; ++i) {
    const auto key = std::to_string(i);
    if (partition_of(hash_key(key)) != 0) continue;
    put(key, view(std::string(3000, 'x')));
    ++n;
  }
  int slices = 0;
  const auto all = everything({.credit = 20'000}, nullptr, &slices);
  EXPECT_EQ(all.size(), 300U);
  EXPECT_GT(slices, 300 * 3000 / 20'000);
  EXPECT_LT(slices, 300);
}

TEST_F(ScanTest, AValueBeyondTheCreditIsSentAlone) {
  put("large", view(std::string(500'000, 'x')));
  put("small", view(1.0));
  const auto all = everything({.credit = 1000});
  EXPECT_EQ(all.size(), 2U);
  EXPECT_EQ(all.find("large")->second.size(), 500'000U);
}

TEST_F(ScanTest, AnAnswerKeepsToTheCreditOrHasOneKey) {
  for (int i = 0; i < 3000; ++i)
    put("k" + std::to_string(i), view(std::string(static_cast<std::size_t>(i % 300), 'x')));
  scan_all(verb::scan, net::scan_request{}, {.credit = 1000}, [&](const scan_answer& a, const net::scan_reply&) {
    EXPECT_TRUE(a.body.size() <= 1000 || a.header.count == 1) << a.body.size();
  });
}

TEST_F(ScanTest, AnyCursorIsAPlaceToBegin) {
  for (int i = 0; i < 2000; ++i) put("k" + std::to_string(i), view(1.0));
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const net::scan_cursor from{static_cast<std::uint32_t>(random() % (partition_count + 1)),
                                static_cast<std::uint32_t>(random() % net::scan_positions)};
    const auto a = ask(verb::scan, net::scan_request{from});
    ASSERT_EQ(a.result, status::ok);
    net::scan_reply r;
    ASSERT_EQ(decode(a.body, r), nullptr);
    net::request_items items(r.rest, a.header.count);
    for (net::request_item item; items.next(item);) {
      const auto hash = hash_key(item.key);
      const auto partition = partition_of(hash);
      ASSERT_TRUE(partition > from.partition || (partition == from.partition && (hash & 0xffffU) >= from.position));
    }
  }
}

TEST_F(ScanTest, ASliceEndsWithItsTimeAndEachComesFurther) {
  reset({}, {.slice = 2ms});
  for (int i = 0; i < 2000; ++i) put("k" + std::to_string(i), view(1.0));
  const auto slow = filter("takes_its_time");
  std::size_t seen = 0;
  auto before = std::chrono::steady_clock::now();
  auto longest = 0ns;
  const int slices =
      scan_all(verb::scan, net::scan_request{}, {.filter = slow}, [&](const scan_answer& a, const auto&) {
        const auto now = std::chrono::steady_clock::now();
        longest = std::max<std::chrono::nanoseconds>(longest, now - before);
        before = now;
        seen += a.header.count;
      });
  EXPECT_EQ(seen, 2000U);
  EXPECT_GT(slices, 5) << "2,000 calls of 20 us and more do not fit a slice of 2 ms";
  EXPECT_LT(longest, 500ms);
}

// ---- selection ----------------------------------------------------------------------------------------------------

TEST_F(ScanTest, APrefixAndAFilterChooseTogether) {
  for (int i = 0; i < 30; ++i) put((i % 2 == 0 ? "a" : "b") + std::to_string(i), view(static_cast<double>(i) / 30));
  EXPECT_EQ(names({.prefix = "a"}).size(), 15U);
  EXPECT_EQ(names({.prefix = "a1"}).size(), 5U);
  EXPECT_EQ(names({.filter = filter("ends_with_seven")}), (std::vector<std::string>{"b17", "b27", "b7"}));
  EXPECT_EQ(names({.prefix = "a", .filter = filter("ends_with_seven")}).size(), 0U);
  EXPECT_EQ(names({.prefix = "b", .filter = filter("at_least_half")}).size(), 8U);
  EXPECT_EQ(host_.ran, "libfilters.so:at_least_half");
  EXPECT_EQ(host_.running, nullptr);
  const auto all = everything({.flags = net::flag_keys_only});
  EXPECT_EQ(all.size(), 30U);
  EXPECT_TRUE(all.begin()->second.empty());
}

TEST_F(ScanTest, AFilterThatFailsIsNamedWithItsKey) {
  for (int i = 0; i < 100; ++i) put("good" + std::to_string(i), view(1.0));
  put("bad\n1", view(1.0));
  for (const auto what : {verb::scan, verb::remove_if}) {
    const auto a = ask(what, net::scan_request{}, {.prefix = "bad", .filter = filter("throws_at_bad")});
    EXPECT_EQ(a.result, status::plugin_failed);
    EXPECT_EQ(a.text, "key \"bad\\x0a1\": libfilters.so:throws_at_bad: does not like this key");
  }
  EXPECT_EQ(ask(verb::reduce, net::reduce_request{}, {.filter = filter("throws_number")}).result,
            status::plugin_failed);
  EXPECT_EQ(ask(verb::top_k, net::top_k_request{{}, 3}, {.filter = filter("throws_number")}).result,
            status::plugin_failed);
  const auto mismatch = ask(verb::scan, net::scan_request{}, {.filter = filter("longer_than_two")});
  EXPECT_EQ(mismatch.result, status::type_mismatch);
  EXPECT_THAT(mismatch.text, HasSubstr("longer_than_two"));
  EXPECT_EQ(keys_->size(), 101U);
  EXPECT_EQ(host_.running, nullptr);
  EXPECT_EQ(ask(verb::scan, net::scan_request{}, {.filter = 12345}).result, status::unknown_function);
}

// ---- top_k --------------------------------------------------------------------------------------------------------

TEST_F(ScanTest, TheLargestComeFirstAndEqualOnesByKey) {
  put("b", view(5.0));
  put("a", view(5.0));
  put("c", view(7.0));
  put("d", view(-1.0));
  put("i", view(std::int64_t{6}));
  put("e", view(std::numeric_limits<double>::infinity()));
  put("n", view(std::nan("")));
  put("v", view(std::vector<double>{100, 200}));
  put("t", view(std::string("text")));
  std::uint64_t skipped = 0;
  EXPECT_EQ(best(4, {}, &skipped), (std::vector<std::string>{"e", "c", "i", "a"}));
  EXPECT_EQ(skipped, 3U);
  EXPECT_EQ(best(100).size(), 6U);
  EXPECT_EQ(best(1, {.prefix = "d"}), std::vector<std::string>{"d"});
}

TEST_F(ScanTest, LargeIntegersAreComparedExactly) {
  const std::int64_t base = std::int64_t{1} << 60;
  for (const int i : {3, 1, 2, 0}) put("k" + std::to_string(i), view(base + i));
  const auto rounded = static_cast<double>(base);
  put("double", view(rounded));
  EXPECT_EQ(best(5), (std::vector<std::string>{"k3", "k2", "k1", "double", "k0"}));
}

TEST_F(ScanTest, TheBestOfManyAreThoseOfASort) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    reset({.threads = seed % 2 == 0 ? 64U : 1U}, {.slice = 10s});
    std::mt19937 random(seed);
    std::vector<std::pair<double, std::string>> model;
    for (int i = 0; i < 20'000; ++i) {
      const auto key = "k" + std::to_string(i);
      if (partition_of(hash_key(key)) % keys_->settings().threads != 0) continue;
      const double value = random() % 500;
      put(key, view(value));
      model.emplace_back(-value, key);
    }
    std::ranges::sort(model);
    const auto found = best(50);
    ASSERT_EQ(found.size(), 50U);
    for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(found[i], model[i].second);
    const auto filtered = best(10, {.filter = filter("ends_with_seven")});
    std::erase_if(model, [](const auto& m) { return !m.second.ends_with('7'); });
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(filtered[i], model[i].second);
  }
}

// ---- reduce -------------------------------------------------------------------------------------------------------

TEST_F(ScanTest, SumsCountScalarsAndTheElementsOfArrays) {
  put("a", view(1.5));
  put("b", view(std::int64_t{-3}));
  put("c", view(std::vector<double>{10, 20, std::nan("")}));
  put("t", view(std::string("text")));
  const auto s = sums();
  EXPECT_EQ(s.keys, 4U);
  EXPECT_EQ(s.numbers, 4U);
  EXPECT_EQ(s.skipped, 2U);
  EXPECT_EQ(s.total(), 28.5);
  EXPECT_EQ(s.minimum, -3);
  EXPECT_EQ(s.maximum, 20);
  EXPECT_EQ(sums({}, {.prefix = "a"}).total(), 1.5);
  EXPECT_EQ(sums({}, {.prefix = "none"}).keys, 0U);
}

TEST_F(ScanTest, ASumIsExactWhereTheSizesDiffer) {
  reset({}, {.slice = 0us});  // many partials
  for (int i = 0; i < 1000; ++i) put("k" + std::to_string(i), view(1.0));
  put("large", view(1e100));
  put("minus", view(-1e100));
  EXPECT_EQ(sums().total(), 1000.0);
  reset({}, {.slice = 0us});
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  put("a", view(most));
  put("b", view(-most + 1));
  put("c", view(std::int64_t{1} << 53));
  put("d", view((std::int64_t{1} << 53) + 1));
  put("e", view(-(std::int64_t{1} << 54)));
  EXPECT_EQ(sums().total(), 2.0);
}

TEST_F(ScanTest, AHistogramCountsEachNumberOnce) {
  for (int i = -5; i <= 15; ++i) put("k" + std::to_string(i), view(static_cast<double>(i)));
  const auto s = sums({.bins = 5, .low = 0, .high = 10});
  EXPECT_EQ(s.bins, (std::vector<std::uint64_t>{2, 2, 2, 2, 3}));
  EXPECT_EQ(s.below, 5U);
  EXPECT_EQ(s.above, 5U);
}

// ---- remove_if ----------------------------------------------------------------------------------------------------

TEST_F(ScanTest, WhatTheFilterTakesGoesWithWhatIsStagedForIt) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    reset({}, {.slice = seed % 2 == 0 ? 0us : 4000us});
    host_.forgotten.clear();
    std::set<std::string> stay;
    for (int i = 0; i < 5000; ++i) {
      const auto key = "k" + std::to_string(i * static_cast<int>(seed));
      put(key, view(1.0));
      if (!key.ends_with('7')) stay.insert(key);
    }
    std::uint64_t removed = 0;
    scan_all(verb::remove_if, net::scan_request{}, {.filter = filter("ends_with_seven")},
             [&](const scan_answer& a, const auto&) { removed += a.header.count; });
    EXPECT_EQ(removed + stay.size(), 5000U);
    EXPECT_EQ(host_.forgotten.size(), removed);
    EXPECT_EQ(keys_->size(), stay.size());
    for (const auto& [key, value] : everything()) EXPECT_TRUE(stay.contains(key));
  }
}

TEST_F(ScanTest, RemovingEverythingIsNotDoneByOversight) {
  put("a", view(1.0));
  EXPECT_EQ(ask(verb::remove_if, net::scan_request{}).result, status::bad_request);
  EXPECT_EQ(ask(verb::remove_if, net::scan_request{}, {.prefix = "a"}).header.count, 1U);
  EXPECT_EQ(keys_->size(), 0U);
}

// ---- BSP ----------------------------------------------------------------------------------------------------------

TEST_F(ScanTest, WhatIsStagedIsFoldedFirstAndInSlicesToo) {
  put("a", view(1.0));
  host_.folds_left = 2;
  int slices = 0;
  EXPECT_EQ(everything({.flags = net::flag_bsp_read, .clock = 4}, nullptr, &slices).size(), 1U);
  EXPECT_EQ(slices, 3);
  EXPECT_EQ(host_.folded, (std::vector<std::uint32_t>{4, 4, 4}));
  host_.folds_left = 1;
  EXPECT_EQ(sums({.bins = 3, .low = 0, .high = 3}, {.flags = net::flag_bsp_read, .clock = 4}).keys, 1U);
  host_.broken_key = "b";
  EXPECT_EQ(ask(verb::scan, net::scan_request{}, {.flags = net::flag_bsp_read, .clock = 4}).result,
            status::plugin_failed);
  EXPECT_EQ(ask(verb::scan, net::scan_request{}, {.prefix = "a", .flags = net::flag_bsp_read, .clock = 4}).result,
            status::ok);
}

// ---- memory -------------------------------------------------------------------------------------------------------

TEST_F(ScanTest, ManyKeysInAndOutLeaveNoGrowth) {
  const auto extent = [&] {
    std::size_t bytes = 0;
    for (const auto& g : keys_->groups()) bytes += g.extent();
    return bytes;
  };
  for (const std::size_t length : {20U, 60U, 33U}) {
    const auto name = [&](int i) {
      auto text = std::to_string(i);
      return text + std::string(length - text.size(), 'x');
    };
    for (int i = 0; i < 100'000; ++i) put(name(i), view(1.0));
    EXPECT_GT(keys_->memory_bytes(), 100'000 * (length + 24));
    for (int i = 0; i < 100'000; ++i) erase(name(i));
    EXPECT_EQ(keys_->size(), 0U);
    // Only tables of four slots and one chunk for each group are left, whatever the keys were.
    EXPECT_LE(keys_->memory_bytes(), partition_count * 32);
    EXPECT_LE(extent(), keys_->groups().size() * arena::chunk_bytes);
  }
}

// ---- malformed requests -------------------------------------------------------------------------------------------

TEST_F(ScanTest, WhatIsNoRequestIsRefusedWithTheReason) {
  const auto refused = [&](verb what, const std::vector<std::byte>& payload) {
    const auto a = send(what, payload, {.prefix = "k"});
    EXPECT_FALSE(a.text.empty());
    return a.result == status::bad_request;
  };
  for (const auto what : {verb::scan, verb::top_k, verb::reduce, verb::remove_if}) {
    for (const std::size_t n : {0U, 1U, 7U, 9U, 11U, 13U, 31U, 33U, 100U}) {
      EXPECT_TRUE(refused(what, std::vector<std::byte>(n))) << n;
    }
  }
  const auto with_front = [](auto r) {
    std::vector<std::byte> payload;
    append(payload, r);
    return payload;
  };
  EXPECT_TRUE(refused(verb::scan, with_front(net::scan_request{{partition_count + 1, 0}})));
  EXPECT_TRUE(refused(verb::scan, with_front(net::scan_request{{0, net::scan_positions}})));
  EXPECT_TRUE(refused(verb::top_k, with_front(net::top_k_request{{}, 0})));
  const auto infinity = std::numeric_limits<double>::infinity();
  for (const auto& [low, high] : {std::pair{1.0, 1.0}, {2.0, 1.0}, {0.0, infinity}, {std::nan(""), 1.0}}) {
    EXPECT_TRUE(refused(verb::reduce, with_front(net::reduce_request{{}, 3, low, high})));
  }
  EXPECT_TRUE(refused(verb::reduce, with_front(net::reduce_request{{}, net::most_histogram_bins + 1, 0, 1})));
}

TEST(ScanPayload, AnswersThatAreNone) {
  std::vector<std::byte> body;
  net::scan_reply scan;
  net::top_k_reply top;
  EXPECT_NE(decode(body, scan), nullptr);
  append(body, net::scan_cursor{partition_count + 1, 0});
  EXPECT_NE(decode(body, scan), nullptr);
  body.clear();
  append(body, net::scan_cursor{3, 4});
  EXPECT_EQ(decode(body, scan), nullptr);
  EXPECT_EQ(scan.next, (net::scan_cursor{3, 4}));
  EXPECT_NE(decode(body, top), nullptr);
  net::summary s;
  EXPECT_NE(decode(std::vector<std::byte>(71), s), nullptr);
  EXPECT_NE(decode(std::vector<std::byte>(75), s), nullptr);
  EXPECT_EQ(decode(std::vector<std::byte>(72 + 16), s), nullptr);
  EXPECT_EQ(s.bins.size(), 2U);
  net::summary other;
  other.bins.resize(3);
  EXPECT_THROW(s.merge(other), protocol_error);
}

}  // namespace
}  // namespace paracel::srv
