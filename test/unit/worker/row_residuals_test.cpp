// SPDX-License-Identifier: BSD-3-Clause
//
// Error feedback: what is sent and what is kept back are together what was asked for.
#include "worker/parameters/row_residuals.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace paracel {
namespace {

constexpr std::size_t plenty = std::size_t{1} << 30;

TEST(RowResiduals, RowsAgreeWithAMapWhateverIsMadeAndErased) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937_64 random(seed);
    residual_rows<std::uint64_t> ids(4);
    residual_rows<std::string> names(4);
    std::map<std::uint64_t, std::uint32_t> model;
    // Few different lower halves, so that there are long runs of occupied slots.
    const auto hash = [](std::uint64_t id) { return id * 0x9e3779b97f4a7c15U % 64 * 3 | id << 40U; };
    const auto store = [](std::byte* row, std::uint32_t x) { std::memcpy(row, &x, sizeof x); };
    const auto load = [](const std::byte* row) {
      std::uint32_t x = 0;
      std::memcpy(&x, row, sizeof x);
      return x;
    };
    for (int step = 0; step < 20'000; ++step) {
      const auto id = random() % 400;
      const auto name = std::to_string(id);
      if (random() % 2 == 0) {
        if (!model.contains(id)) {
          ASSERT_EQ(load(ids.make(hash(id), id)), 0U) << "a row begins with zeros";
          ASSERT_EQ(load(names.make(hash(id), name)), 0U);
        }
        const auto x = static_cast<std::uint32_t>(random());
        model[id] = x;
        store(ids.make(hash(id), id), x);
        store(names.make(hash(id), name), x);
      } else {
        model.erase(id);
        ids.erase(hash(id), id);
        names.erase(hash(id), name);
      }
      ASSERT_EQ(ids.size(), model.size());
      ASSERT_EQ(names.size(), model.size());
    }
    std::map<std::uint64_t, std::uint32_t> found, found_by_name;
    ids.for_each([&](std::uint64_t id, const std::byte* row) { found[id] = load(row); });
    names.for_each(
        [&](std::string_view n, const std::byte* row) { found_by_name[std::stoull(std::string(n))] = load(row); });
    EXPECT_EQ(found, model);
    EXPECT_EQ(found_by_name, model);
    for (std::uint64_t id = 0; id < 400; ++id) ASSERT_EQ(ids.find(hash(id), id) != nullptr, model.contains(id)) << id;
    const auto used = ids.bytes();
    for (const auto& [id, x] : model) ids.erase(hash(id), id);
    EXPECT_EQ(ids.bytes(), 0U);
    EXPECT_GT(used, 0U);
  }
}

/// The sum of what arrives differs from that of the updates by what one rounding leaves, after any number of them.
template <class T>
void sums_stay_together(wire_format format, unsigned seed) {
  constexpr std::size_t width = 9, rows = 7;
  row_residuals kept(format, tag_of<T>(), width, plenty);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> asked(rows, std::vector<double>(width)), arrived = asked;
  std::vector<double> last_greatest(rows);
  std::vector<std::byte> wire(net::wire_bytes(format, tag_of<T>(), width));
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t id = random() % rows;
    std::vector<T> row(width), got(width);
    for (std::size_t j = 0; j < width; ++j) {
      row[j] = static_cast<T>(normal(random) * 0.01 + 0.003 * static_cast<double>(j));
      asked[id][j] += static_cast<double>(row[j]);
    }
    if (id % 2 == 0) kept.quantise(id, reinterpret_cast<std::byte*>(row.data()), wire.data());
    else kept.quantise("row " + std::to_string(id), reinterpret_cast<std::byte*>(row.data()), wire.data());
    net::dequantise(format, tag_of<T>(), wire.data(), 1, width, reinterpret_cast<std::byte*>(got.data()));
    last_greatest[id] = 0;
    for (std::size_t j = 0; j < width; ++j) {
      arrived[id][j] += static_cast<double>(got[j]);
      last_greatest[id] = std::max(last_greatest[id], std::abs(static_cast<double>(row[j])));
    }
  }
  EXPECT_EQ(kept.size(), rows);
  const double lost_by_adding = std::is_same_v<T, float> ? 3000 * 0x1p-24 * 0.1 : 1e-12;  // to what is kept, in T
  for (std::uint64_t id = 0; id < rows; ++id) {
    const auto quantum = last_greatest[id] * (format == wire_format::f16 ? 0x1p-11 : 1.0 / 254 + 1e-6);
    std::vector<T> rest(width);
    if (id % 2 == 0) kept.release(id, reinterpret_cast<std::byte*>(rest.data()));
    else kept.release("row " + std::to_string(id), reinterpret_cast<std::byte*>(rest.data()));
    for (std::size_t j = 0; j < width; ++j) {
      EXPECT_LE(std::abs(arrived[id][j] - asked[id][j]), quantum + lost_by_adding) << id << " " << j;
      EXPECT_NEAR(arrived[id][j] + static_cast<double>(rest[j]), asked[id][j], lost_by_adding);
    }
  }
  EXPECT_EQ(kept.size(), 0U);
}

TEST(RowResiduals, SumsStayWithinOneRounding) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    for (const auto format : {wire_format::f16, wire_format::i8}) {
      sums_stay_together<float>(format, seed);
      sums_stay_together<double>(format, seed);
    }
  }
}

TEST(RowResiduals, WhatIsTooLargeArrivesInSeveralUpdates) {
  row_residuals kept(wire_format::f16, value_tag::f64, 2, plenty);
  const std::uint64_t id = 3;
  double sum = 0;
  std::vector<double> row{150'000, -1};
  for (int i = 0; i < 3; ++i) {
    std::vector<std::byte> wire(4);
    std::vector<double> got(2);
    kept.quantise(id, reinterpret_cast<std::byte*>(row.data()), wire.data());
    net::dequantise(wire_format::f16, value_tag::f64, wire.data(), 1, 2, reinterpret_cast<std::byte*>(got.data()));
    EXPECT_LE(got[0], 65504);
    sum += got[0];
    row = {0, 0};
  }
  EXPECT_NEAR(sum, 150'000, 8);
}

TEST(RowResiduals, NothingIsKeptOfNumbersThatAreNotFinite) {
  for (const auto format : {wire_format::f16, wire_format::i8}) {
    row_residuals kept(format, value_tag::f32, 3, plenty);
    std::vector<std::byte> wire(net::wire_bytes(format, value_tag::f32, 3));
    for (const float x : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> row{0.1F, x, 0.3F};
      kept.quantise(std::uint64_t{1}, reinterpret_cast<std::byte*>(row.data()), wire.data());
      std::vector<float> rest(3);
      kept.release(std::uint64_t{1}, reinterpret_cast<std::byte*>(rest.data()));
      for (const auto r : rest) EXPECT_LT(std::abs(r), 1e-3);
      EXPECT_EQ(rest[1], 0);
    }
  }
}

TEST(RowResiduals, RoomIsForRowsThatExistAndForNoMore) {
  const std::vector<std::uint64_t> ten{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<std::string> one{"a name"};
  row_residuals probe(wire_format::f16, value_tag::f32, 4, plenty);
  const auto keep = [](row_residuals& r, const auto& key) {
    std::vector<float> row{0.1F, 0.2F, 0.3F, 0.4F};
    std::vector<std::byte> wire(8);
    r.quantise(key, reinterpret_cast<std::byte*>(row.data()), wire.data());
  };
  for (const auto id : ten) keep(probe, id);
  const auto bytes = probe.bytes();
  row_residuals r(wire_format::f16, value_tag::f32, 4, bytes);
  EXPECT_TRUE(r.has_room(ten));
  for (const auto id : ten) keep(r, id);
  EXPECT_EQ(r.bytes(), bytes);
  EXPECT_TRUE(r.has_room(ten)) << "they are there";
  EXPECT_FALSE(r.has_room(std::vector<std::uint64_t>{9, 10}));
  EXPECT_FALSE(r.has_room(one));
  EXPECT_EQ(r.ids(), ten);
  r.forget(std::uint64_t{4});
  EXPECT_TRUE(r.has_room(std::vector<std::uint64_t>{9, 10}));
  r.clear();
  EXPECT_EQ(r.bytes(), 0U);
  keep(r, one[0]);
  EXPECT_EQ(r.names(), one);
}

TEST(RowResiduals, WhatIsKeptCanBeSavedAndRestored) {
  std::mt19937_64 random(1);
  row_residuals kept(wire_format::i8, value_tag::f64, 3, plenty);
  std::vector<std::byte> wire(net::wire_bytes(wire_format::i8, value_tag::f64, 3));
  std::vector<double> row(3);
  for (int i = 0; i < 500; ++i) {
    for (auto& x : row) x = static_cast<double>(random() % 1000) / 7;
    if (i % 2 == 0) kept.quantise(std::uint64_t{random() % 90}, reinterpret_cast<std::byte*>(row.data()), wire.data());
    else kept.quantise(std::string(random() % 40, 'n'), reinterpret_cast<std::byte*>(row.data()), wire.data());
  }
  const auto text = kept.encode();
  row_residuals other(wire_format::f16, value_tag::f64, 3, plenty);
  ASSERT_EQ(other.decode(text), nullptr);
  EXPECT_EQ(other.encode(), text);
  EXPECT_EQ(other.ids(), kept.ids());
  EXPECT_EQ(other.names(), kept.names());
  for (const auto id : kept.ids()) {
    std::vector<double> a(3), b(3);
    kept.release(id, reinterpret_cast<std::byte*>(a.data()));
    other.release(id, reinterpret_cast<std::byte*>(b.data()));
    ASSERT_EQ(a, b);
  }
  const auto rest = other.encode();
  for (std::size_t n = 0; n < text.size(); n += 13) {
    ASSERT_STREQ(other.decode(text.substr(0, n)), "it is cut off") << n;
  }
  EXPECT_STREQ(other.decode(text + "x"), "there is more than its rows");
  EXPECT_EQ(other.encode(), rest) << "nothing has changed";
  row_residuals wide(wire_format::f16, value_tag::f64, 4, plenty);
  EXPECT_STREQ(wide.decode(text), "its rows have another type or width");
}

}  // namespace
}  // namespace paracel
