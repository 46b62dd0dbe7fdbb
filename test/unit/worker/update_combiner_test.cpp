// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/update_combiner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace paracel {
namespace {

using testing::ElementsAre;

struct ticket {};
using combiner = update_combiner<ticket>;

template <class T>
value_view view(const std::vector<T>& v) {
  return {array_tag_of<T>(), std::as_bytes(std::span(v))};
}
template <class T>
std::vector<T> numbers(const combiner::entry& e) {
  std::vector<T> v(e.sum.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), e.sum.data(), e.sum.size());
  return v;
}

TEST(UpdateCombiner, AddsUpByKeyAndGivesTheOldestFirst) {
  combiner c;
  EXPECT_TRUE(c.empty());
  ASSERT_NE(c.add("b", view<double>({1, 2}), 7), nullptr);
  ASSERT_NE(c.add("a", view<float>({1}), 7), nullptr);
  ASSERT_NE(c.add("b", view<double>({10, 20}), 7), nullptr);
  EXPECT_EQ(c.size(), 2U);
  EXPECT_EQ(c.bytes(), 20U);
  const auto all = c.take_all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].key, "b");
  EXPECT_EQ(all[0].function, 7U);
  EXPECT_THAT(numbers<double>(all[0]), ElementsAre(11, 22));
  EXPECT_EQ(all[1].tag, value_tag::f32_array);
  EXPECT_TRUE(c.empty());
  EXPECT_EQ(c.bytes(), 0U);
}

TEST(UpdateCombiner, RefusesWhatIsNotTheSameKindOfDelta) {
  combiner c;
  ASSERT_NE(c.add("k", view<double>({1, 2}), 0), nullptr);
  EXPECT_EQ(c.add("k", view<double>({1}), 0), nullptr) << "size";
  EXPECT_EQ(c.add("k", view<std::int64_t>({1, 2}), 0), nullptr) << "type";
  EXPECT_EQ(c.add("k", view<double>({1, 2}), 1), nullptr) << "function";
  const auto e = c.take("k");
  ASSERT_TRUE(e.has_value());
  EXPECT_THAT(numbers<double>(*e), ElementsAre(1, 2)) << "what was refused is not in it";
  EXPECT_FALSE(c.take("k").has_value());
  EXPECT_NE(c.add("k", view<double>({1}), 1), nullptr);
}

TEST(UpdateCombiner, DoesNotLetAnInt32Overflow) {
  // The value may be wider than the deltas; applied one by one they would fit.
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  constexpr auto least = std::numeric_limits<std::int32_t>::min();
  combiner c;
  ASSERT_NE(c.add("k", view<std::int32_t>({0, most, least}), 0), nullptr);
  EXPECT_EQ(c.add("k", view<std::int32_t>({0, 1, 0}), 0), nullptr);
  EXPECT_EQ(c.add("k", view<std::int32_t>({0, 0, -1}), 0), nullptr);
  ASSERT_NE(c.add("k", view<std::int32_t>({1, -1, 1}), 0), nullptr);
  EXPECT_THAT(numbers<std::int32_t>(*c.take("k")), ElementsAre(1, most - 1, least + 1));
}

TEST(UpdateCombiner, DoesWhatAMapOfSumsDoes) {
  std::mt19937 random(1);
  combiner c;
  std::map<std::string, std::int64_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto key = std::to_string(random() % 40);
    const auto what = random() % 100;
    if (what < 80) {
      const std::vector<std::int64_t> delta{static_cast<std::int64_t>(random() % 1000)};
      ASSERT_NE(c.add(key, view(delta), 0), nullptr);
      model[key] += delta[0];
    } else if (what < 99) {
      const auto e = c.take(key);
      ASSERT_EQ(e.has_value(), model.contains(key));
      if (e) {
        ASSERT_EQ(numbers<std::int64_t>(*e)[0], model[key]);
      }
      model.erase(key);
    } else {
      const auto all = c.take_all();
      ASSERT_EQ(all.size(), model.size());
      for (const auto& e : all) ASSERT_EQ(numbers<std::int64_t>(e)[0], model.at(e.key));
      model.clear();
    }
    ASSERT_EQ(c.size(), model.size());
    ASSERT_EQ(c.bytes(), model.size() * 8);
    ASSERT_EQ(c.contains(key), model.contains(key));
  }
}

}  // namespace
}  // namespace paracel
