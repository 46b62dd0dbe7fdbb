// SPDX-License-Identifier: BSD-3-Clause
//
// Large tables of keys and of rows between two arrays of slots: every operation agrees with a std::map at every stage
// of growing and of shrinking, and all memory is given back.
#include "server/store/growing_slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "net/row_codec.hpp"
#include "server/store/key_store.hpp"
#include "server/store/partition_table.hpp"
#include "server/store/row_table.hpp"

namespace paracel::srv {
namespace {

constexpr std::size_t small_slots = large_slots::above;  // the largest table that is moved at once
constexpr std::size_t keys_before_growth = small_slots * 3 / 4 - 1;
constexpr std::size_t rows_before_growth = small_slots * 7 / 8;

std::vector<std::byte> bytes_of(unsigned v) { return std::vector<std::byte>(8 + v % 4 * 8, static_cast<std::byte>(v)); }

/// Random numbers of 32 bits.
class chance {
 public:
  explicit chance(unsigned seed) : random_(seed) {}
  unsigned operator()() { return static_cast<unsigned>(random_()); }

 private:
  std::mt19937 random_;
};

/// A table beside its model: the value of a key is `bytes_of` a number.
class checked_table {
 public:
  ~checked_table() {
    table_.clear();
    EXPECT_EQ(memory_.used(), 0U) << "slots and entries";
    EXPECT_EQ(family_.replaced_bytes, 0U);
  }
  void store(const std::string& key, unsigned v) {
    table_.store(hash_key(key), key, value_view{value_tag::packed, bytes_of(v)});
    model_[key] = v;
  }
  void erase(const std::string& key) { ASSERT_EQ(table_.erase(hash_key(key), key), model_.erase(key) == 1) << key; }
  void check(const std::string& key) const {
    const auto hash = hash_key(key);
    const auto m = model_.find(key);
    table_.prefetch_slot(hash);
    const auto* e = table_.find(hash, key);
    ASSERT_EQ(e != nullptr, m != model_.end()) << key;
    if (e == nullptr) return;
    ASSERT_EQ(e->key(), key);
    ASSERT_TRUE(std::ranges::equal(e->value(), bytes_of(m->second))) << key;
    const auto* guess = table_.guess(hash);
    ASSERT_NE(guess, nullptr);
    ASSERT_EQ(hash_key(guess->key()) & 0xffffU, hash & 0xffffU);
  }
  /// By all parts of the hash together, and by each.
  void check_all() const {
    for (const std::uint32_t width : {0x10000U, 0x5000U}) {
      std::vector<const entry*> seen;
      for (std::uint32_t first = 0; first < 0x10000U; first += width) {
        table_.for_each(first, width, [&](const entry& e) {
          ASSERT_LT((hash_key(e.key()) & 0xffffU) - first, width);
          seen.push_back(&e);
        });
      }
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << "a key twice";
      ASSERT_EQ(seen.size(), model_.size());
    }
    for (const auto& [key, unused] : model_) check(key);
    ASSERT_EQ(table_.size(), model_.size());
  }
  void move_entries() {
    memory_.begin_moving();
    table_.move_entries();
    memory_.end_moving();
  }
  void move_itself() {
    table other(std::move(table_));
    EXPECT_EQ(table_.size(), 0U);
    table_ = std::move(other);
  }
  [[nodiscard]] table& object() { return table_; }
  [[nodiscard]] std::size_t size() const { return model_.size(); }
  [[nodiscard]] std::size_t memory() const { return memory_.used(); }
  [[nodiscard]] const table_stats& family() const { return family_; }

 private:
  chunk_pool pool_;
  arena memory_{pool_};
  table_stats family_;
  table table_{memory_, family_};
  std::map<std::string, unsigned> model_;
};

TEST(GrowingTable, AgreesWithAMapAtEveryStage) {
  for (const unsigned seed : {1U, 2U}) {
    checked_table t;
    chance random(seed);
    const auto key_of = [](std::size_t i) { return "key " + std::to_string(i); };
    std::size_t next = 0;
    for (; next < keys_before_growth; ++next) t.store(key_of(next), random());
    ASSERT_FALSE(t.object().is_moving());
    int steps = 0, stages = 0;
    bool was_moving = false;
    // Through the growth to 131,072 slots, and to 262,144.
    while (stages < 2) {
      const auto any = key_of(random() % (next + 100));
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          t.store(key_of(next++), random());
          break;
        case 3:
          t.store(any, random());
          break;
        case 4:
          if (!was_moving && random() % 4 != 0) t.store(key_of(next++), random());  // else it would hardly grow
          else t.erase(any);
          break;
        default:
          t.check(any);
      }
      ASSERT_EQ(t.object().size(), t.size());
      const bool moving = t.object().is_moving();
      if (moving && ++steps % 4000 == 1) {
        t.check_all();
        if (steps % 8000 == 1) t.move_entries();
        else t.move_itself();
      }
      if (was_moving && !moving) {
        ++stages;
        EXPECT_EQ(t.family().replaced_bytes, 0U);
        t.check_all();
        const auto all = next + 49'000;
        for (; stages == 1 && next < all && !t.object().is_moving(); ++next) t.store(key_of(next), random());
      }
      was_moving = t.object().is_moving();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(steps, 4 * 4000) << "that many operations met two arrays";
  }
}

TEST(GrowingTable, ShrinksInStepsWhileKeysComeAndGo) {
  checked_table t;
  chance random(5);
  const auto key_of = [](std::size_t i) { return "key " + std::to_string(i); };
  constexpr std::size_t most = 400'000;  // 1,048,576 slots
  for (std::size_t i = 0; i < most; ++i) t.store(key_of(i), random());
  while (t.object().fit()) {
  }
  const auto full = t.memory();
  for (std::size_t i = 0; i < most; ++i) {
    if (i % 6 != 0) t.erase(key_of(i));
  }
  ASSERT_TRUE(t.object().fit());
  ASSERT_TRUE(t.object().is_moving());
  int checks = 0;
  std::size_t next = most;
  do {
    t.store(key_of(next++), random());
    t.erase(key_of(random() % next));
    t.check(key_of(random() % next));
    if (++checks % 2000 == 1) t.check_all();
    if (::testing::Test::HasFatalFailure()) return;
  } while (t.object().fit());
  EXPECT_GT(checks, 100);
  EXPECT_FALSE(t.object().is_moving());
  t.check_all();
  EXPECT_LT(t.memory(), full / 4);
}

TEST(GrowingTable, ClearedOrEmptiedWhileItGrowsItLeavesNothing) {
  const auto key_of = [](std::size_t i) { return "key " + std::to_string(i); };
  for (const bool by_key : {false, true}) {
    checked_table t;
    std::size_t n = 0;
    while (!t.object().is_moving()) t.store(key_of(n), 0), ++n;
    for (std::size_t i = 0; by_key && i < n; ++i) t.erase(key_of(i));
    if (!by_key) t.object().clear();
    EXPECT_EQ(t.memory(), 0U);
    EXPECT_EQ(t.object().find(hash_key(key_of(0)), key_of(0)), nullptr);
  }
}

// A run may continue from the last slot at the first one.
TEST(GrowingTable, ARunAroundTheEndMovesWhole) {
  checked_table t;
  std::vector<std::string> around;
  for (int i = 0; around.size() < 40; ++i) {
    auto key = "around " + std::to_string(i);
    if ((hash_key(key) & (small_slots - 1)) >= small_slots - 3) around.push_back(std::move(key));
  }
  for (const auto& key : around) t.store(key, 1);
  std::size_t n = 0;
  for (; !t.object().is_moving(); ++n) t.store("key " + std::to_string(n), static_cast<unsigned>(n));
  t.check_all();
  for (std::size_t i = 0; i < around.size(); i += 2) t.erase(around[i]);
  t.check_all();
  for (; t.object().is_moving(); ++n) {
    t.store("key " + std::to_string(n), static_cast<unsigned>(n));
    if (n % 8 == 0) t.erase(around[n % around.size()]);
    for (std::size_t i = n % 7; i < around.size(); i += 7) t.check(around[i]);
  }
  t.check_all();
}

TEST(GrowingTable, TheFrontOfALargeArrayIsGivenBackWhileItIsMoved) {
  checked_table t;
  const auto key_of = [](std::size_t i) { return "key " + std::to_string(i); };
  std::size_t n = 0;
  const auto add = [&] { t.store(key_of(n), 0), ++n; };
  while (n < std::size_t{1} << 19U || !t.object().is_moving()) add();  // from 8 MiB of slots
  const auto all = t.family().replaced_bytes;
  EXPECT_EQ(all, std::size_t{8} << 20U);
  std::set<std::size_t> held;
  for (; t.object().is_moving(); add()) held.insert(t.family().replaced_bytes >> 20U);
  EXPECT_EQ(held, (std::set<std::size_t>{2, 4, 6, 8}));
  for (std::size_t i = 0; i < n; i += 97) t.check(key_of(i));
}

TEST(GrowingTable, AKeyStoreTidiesWhatHasStoppedGrowing) {
  const std::atomic<const ownership*> nobody{nullptr};
  key_store store({}, nobody);
  const double number = 1;
  const value_view value{value_tag::f64, std::as_bytes(std::span(&number, 1))};
  const auto hash_in_one = [](const std::string& key) { return hash_key(key) & (~std::uint64_t{0} >> 14U); };
  std::size_t n = 0;
  const auto add = [&] {
    const auto key = std::to_string(n++);
    store.store(hash_in_one(key), key, value);
  };
  while (store.family().replaced_bytes == 0) add();
  EXPECT_GE(store.unused_bytes(), store.family().replaced_bytes);
  const auto memory = store.memory_bytes();
  int slices = 1;
  for (bool go_on = false; store.tidy([&] { return std::exchange(go_on, !go_on); }); go_on = false) ++slices;
  EXPECT_GT(slices, 5) << "in steps";
  EXPECT_EQ(store.family().replaced_bytes, 0U);
  EXPECT_EQ(memory - store.memory_bytes(), small_slots * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < n; ++i) {
    const auto key = std::to_string(i);
    ASSERT_NE(store.find(hash_in_one(key), key), nullptr);
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class Key>
class checked_rows {
 public:
  static constexpr bool named = std::is_same_v<Key, std::string>;
  using seen_key = std::conditional_t<named, std::string_view, std::uint64_t>;
  static Key key_of(std::size_t i) {
    if constexpr (named) return "row " + std::to_string(i);
    else return i * 7;
  }
  void make(std::size_t i) {
    if (model_.contains(i)) return;
    const auto key = key_of(i);
    const auto hash = net::hash_row(seen_key(key));
    auto* row = rows_.make(0, hash, seen_key(key));
    const auto v = static_cast<float>(i);
    std::memcpy(row + row_layout::value_at, &v, sizeof v);
    model_[i] = row;
  }
  void erase(std::size_t i) {
    const auto key = key_of(i);
    ASSERT_EQ(rows_.erase(0, net::hash_row(seen_key(key)), seen_key(key)), model_.erase(i) == 1) << i;
  }
  void check(std::size_t i) const {
    const auto key = key_of(i);
    const auto hash = net::hash_row(seen_key(key));
    rows_.prefetch_slot(0, hash);
    const auto m = model_.find(i);
    ASSERT_EQ(rows_.find(0, hash, seen_key(key)), m == model_.end() ? nullptr : m->second) << i;
    if (m == model_.end()) return;
    ASSERT_EQ(rows_.guess(0, hash) != nullptr, true) << i;
  }
  void check_all() const {
    std::vector<const std::byte*> want, got, walked;
    for (const auto& [i, row] : model_) {
      want.push_back(row);
      check(i);
    }
    rows_.for_each(0, [&](const std::byte* row) { got.push_back(row); });
    for (std::uint64_t position = 0; const auto* row = rows_.next(position);) walked.push_back(row);
    for (auto* v : {&want, &got, &walked}) std::sort(v->begin(), v->end());
    ASSERT_EQ(got, want);
    ASSERT_EQ(walked, want);
    ASSERT_EQ(rows_.size(0), model_.size());
  }
  void clear(bool all) {
    if (all) rows_.clear();
    else rows_.clear(0);
    model_.clear();
  }
  [[nodiscard]] bool is_moving() const { return rows_.is_moving(0); }
  [[nodiscard]] row_table& object() { return rows_; }

 private:
  row_table rows_{{value_tag::f32, 2, 0, false}, 1, named};
  std::map<std::size_t, std::byte*> model_;
};

template <class Key>
void rows_agree_with_a_map(unsigned seed) {
  checked_rows<Key> rows;
  chance random(seed);
  std::size_t next = 0;
  for (; next < rows_before_growth; ++next) rows.make(next);
  ASSERT_FALSE(rows.is_moving());
  rows.make(next++);
  ASSERT_TRUE(rows.is_moving());
  int steps = 0;
  for (; rows.is_moving(); ++steps) {
    const auto any = random() % (next + 100);
    switch (random() % 5) {
      case 0:
        rows.make(next++);
        break;
      case 1:
        rows.make(any);
        break;
      case 2:
        rows.erase(any);
        break;
      default:
        rows.check(any);
    }
    if (steps % 4000 == 0) rows.check_all();
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(steps, 4000);
  rows.check_all();
  // Shrinks in slices, with operations in between.
  for (std::size_t i = 0; i < next; ++i) {
    if (i % 100 != 0) rows.erase(i);
  }
  while (rows.object().tidy([] { return true; })) {
    rows.make(next++);
    rows.erase(random() % next);
    rows.check(random() % next);
  }
  rows.check_all();
}

TEST(GrowingRows, AgreeWithAMapAtEveryStage) {
  for (const unsigned seed : {1U, 2U}) {
    rows_agree_with_a_map<std::uint64_t>(seed);
    rows_agree_with_a_map<std::string>(seed);
  }
}

template <class Key>
void cleared_rows_leave_nothing() {
  for (const bool all : {true, false}) {
    checked_rows<Key> rows;
    const auto empty = rows.object().memory_bytes();
    for (int round = 0; round < 2; ++round) {
      std::size_t i = 0;
      while (!rows.is_moving()) rows.make(i++);
      rows.check_all();
      rows.clear(all);
      EXPECT_FALSE(rows.is_moving());
      rows.check_all();
      while (rows.object().tidy([] { return false; })) {
      }
      // Its last slab, and a bit a row.
      EXPECT_LT(rows.object().memory_bytes(), empty + 20'000);
    }
  }
}

TEST(GrowingRows, ClearedWhileTheyGrowTheyLeaveNothing) {
  cleared_rows_leave_nothing<std::uint64_t>();
  cleared_rows_leave_nothing<std::string>();
}

TEST(GrowingRows, TidyEndsWhatHasStoppedGrowing) {
  checked_rows<std::uint64_t> rows;
  std::size_t i = 0;
  while (i < std::size_t{1} << 19U || !rows.is_moving()) rows.make(i++);  // from 8 MiB of slots
  ASSERT_TRUE(rows.object().wants_tidying());
  const auto memory = rows.object().memory_bytes();
  int slices = 1;
  while (rows.object().wants_tidying() && rows.object().tidy([] { return true; })) ++slices;
  EXPECT_GT(slices, 100) << "in steps";
  EXPECT_FALSE(rows.is_moving());
  EXPECT_FALSE(rows.object().wants_tidying());
  EXPECT_EQ(memory - rows.object().memory_bytes(), std::size_t{8} << 20U);
  for (std::size_t k = 0; k < i; k += 97) rows.check(k);
}

}  // namespace
}  // namespace paracel::srv
