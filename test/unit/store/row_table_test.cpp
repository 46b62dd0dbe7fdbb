// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <paracel/detail/row_init.hpp>

#include "net/row_codec.hpp"

namespace paracel::srv {
namespace {

constexpr std::uint32_t partitions = 16;  // few, so that each is large

std::uint32_t place_of(std::uint64_t hash) { return partition_of(hash) % partitions; }

float first_of(const std::byte* row) {
  float v = 0;
  std::memcpy(&v, row + row_layout::value_at, sizeof v);
  return v;
}
void set_first(std::byte* row, float v) { std::memcpy(row + row_layout::value_at, &v, sizeof v); }

template <class Key>
void agrees_with_a_map(bool named, unsigned seed, const std::function<Key(unsigned)>& key_of) {
  std::mt19937 random(seed);
  row_table rows({value_tag::f32, 3, 1, true}, partitions, named);
  std::map<unsigned, float> model;
  const auto key = [&](unsigned k) -> std::conditional_t<std::is_same_v<Key, std::string>, std::string, std::uint64_t> {
    return key_of(k);
  };
  using seen_key = std::conditional_t<std::is_same_v<Key, std::string>, std::string_view, std::uint64_t>;
  for (int step = 0; step < 40'000; ++step) {
    const unsigned k = random() % 700;
    const auto full = key(k);
    const seen_key name = full;
    const auto hash = net::hash_row(name);
    auto* row = rows.find(place_of(hash), hash, name);
    ASSERT_EQ(row != nullptr, model.contains(k)) << step;
    if (row != nullptr) {
      ASSERT_EQ(first_of(row), model[k]);
    }
    switch (random() % 3) {
      case 0:
      case 1:
        if (row == nullptr) {
          row = rows.make(place_of(hash), hash, name);
          ASSERT_EQ(first_of(row), 0) << "a new row is zeros, whatever its memory held";
          ASSERT_TRUE(row_table::is(row, name));
        }
        model[k] = static_cast<float>(step + 1);
        set_first(row, model[k]);
        break;
      default:
        ASSERT_EQ(rows.erase(place_of(hash), hash, name), model.erase(k) == 1);
    }
    ASSERT_EQ(rows.size(), model.size());
    if (step % 5000 == 4999) {
      std::multiset<float> want, got;
      for (const auto& [unused, v] : model) want.insert(v);
      for (std::uint64_t position = 0; const auto* r = rows.next(position);) got.insert(first_of(r));
      ASSERT_EQ(got, want);
    }
    if (step % 17'000 == 16'999) {
      rows.clear();
      model.clear();
    }
  }
}

TEST(RowTable, AgreesWithAMapUnderRandomOperations) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    agrees_with_a_map<std::uint64_t>(false, seed, [](unsigned k) { return k * 0x9e3779b97f4a7c15U; });
    agrees_with_a_map<std::uint64_t>(false, seed, [](unsigned k) { return std::uint64_t{k}; });
    agrees_with_a_map<std::string>(true, seed, [](unsigned k) { return std::string(k % 40, 'x') + std::to_string(k); });
  }
}

TEST(RowTable, RowsStayWhereTheyAreWhileTheTableGrows) {
  row_table rows({value_tag::f32, 16, 0, false}, partitions, false);
  std::map<std::uint64_t, std::byte*> at;
  for (std::uint64_t id = 0; id < 200'000; ++id) {
    const auto hash = net::hash_row(id);
    auto* row = rows.make(place_of(hash), hash, id);
    if (id % 1000 == 0) at[id] = row;
  }
  for (const auto& [id, row] : at) {
    const auto hash = net::hash_row(id);
    EXPECT_EQ(rows.find(place_of(hash), hash, id), row);
    EXPECT_EQ(rows.guess(place_of(hash), hash), row) << "32 bits of hash hardly ever agree";
  }
}

// Two keys with the same 32-bit hash are distinguished by the key itself.
TEST(RowTable, EqualHashesAreNotEqualRows) {
  row_table ids({value_tag::f32, 1, 0, false}, 1, false);
  row_table names({value_tag::f32, 1, 0, false}, 1, true);
  constexpr std::uint64_t hash = 0x123456789abcdef0U;
  for (std::uint64_t id = 0; id < 50; ++id) {
    set_first(ids.make(0, hash, id), static_cast<float>(id));
    set_first(names.make(0, hash, std::string_view(std::to_string(id))), static_cast<float>(id));
  }
  for (std::uint64_t id = 0; id < 50; id += 2) {
    EXPECT_TRUE(ids.erase(0, hash, id));
    EXPECT_TRUE(names.erase(0, hash, std::string_view(std::to_string(id))));
  }
  for (std::uint64_t id = 0; id < 50; ++id) {
    const auto text = std::to_string(id);
    auto* by_id = ids.find(0, hash, id);
    auto* by_name = names.find(0, hash, std::string_view(text));
    ASSERT_EQ(by_id != nullptr, id % 2 == 1);
    ASSERT_EQ(by_name != nullptr, id % 2 == 1);
    if (by_id == nullptr) continue;
    EXPECT_EQ(first_of(by_id), static_cast<float>(id));
    EXPECT_EQ(first_of(by_name), static_cast<float>(id));
    EXPECT_EQ(row_table::name_of(by_name), text);
  }
}

TEST(RowTable, AWalkMeetsARowThatStaysOnceWhateverComesAndGoes) {
  row_table rows({value_tag::f64, 2, 0, false}, partitions, false);
  const auto make = [&](std::uint64_t id) {
    const auto hash = net::hash_row(id);
    if (rows.find(place_of(hash), hash, id) == nullptr) rows.make(place_of(hash), hash, id);
  };
  for (std::uint64_t id = 0; id < 5000; ++id) make(id);
  std::mt19937 random(4);
  std::map<std::uint64_t, int> met;
  std::uint64_t position = 0;
  while (const auto* row = rows.next(position)) {
    ++met[row_table::id_of(row)];
    const std::uint64_t id = random() % 5000;  // odd ones are inserted and removed, even ones stay
    const auto hash = net::hash_row(id | 1U);
    if (random() % 2 == 0) rows.erase(place_of(hash), hash, id | 1U);
    else make(id | 1U);
    if (random() % 4 == 0) make(10'000 + random() % 100'000);
  }
  for (std::uint64_t id = 0; id < 5000; id += 2) ASSERT_EQ(met[id], 1) << id;
}

TEST(RowTable, ARowOfFloatsTakesAtMost32BytesBesideItsNumbers) {
  constexpr std::size_t count = 1'000'000;
  for (const auto& [width, states, counts] :
       {std::tuple{16U, 0U, false}, std::tuple{16U, 1U, false}, std::tuple{16U, 2U, true}, std::tuple{1U, 0U, false}}) {
    row_table rows({value_tag::f32, width, states, counts}, partition_count, false);
    const auto empty = rows.memory_bytes();
    for (std::uint64_t id = 0; id < count; ++id) {
      const auto hash = net::hash_row(id);
      rows.make(partition_of(hash), hash, id);
    }
    const auto a_row = static_cast<double>(rows.memory_bytes()) / count;
    EXPECT_LE(a_row, width * 4.0 * (1 + states) + 32) << width << " floats with " << states << " states";
    EXPECT_GE(a_row, width * 4.0 * (1 + states) + 8);
    rows.clear();
    EXPECT_LE(rows.memory_bytes(), empty);
  }
}

TEST(RowTable, AMillionRowsInAndOutLeaveNoGrowth) {
  row_table rows({value_tag::f32, 4, 0, false}, partitions, false);
  std::size_t after_first = 0;
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t id = 0; id < 100'000; ++id) {
      const auto hash = net::hash_row(id + static_cast<std::uint64_t>(round) * 1'000'000);
      rows.make(place_of(hash), hash, id + static_cast<std::uint64_t>(round) * 1'000'000);
    }
    for (std::uint64_t id = 0; id < 100'000; ++id) {
      const auto hash = net::hash_row(id + static_cast<std::uint64_t>(round) * 1'000'000);
      ASSERT_TRUE(rows.erase(place_of(hash), hash, id + static_cast<std::uint64_t>(round) * 1'000'000));
    }
    if (round == 0) after_first = rows.memory_bytes();
  }
  EXPECT_EQ(rows.size(), 0U);
  EXPECT_LE(rows.memory_bytes(), after_first + after_first / 10);
}

TEST(RowTable, WhatErasedRowsLeaveBehindIsGivenBack) {
  row_table rows({value_tag::f32, 16, 0, false}, partitions, false);
  const auto empty = rows.memory_bytes();
  constexpr std::uint64_t count = 400'000;  // four slabs
  const auto make = [&](std::uint64_t id) {
    const auto hash = net::hash_row(id);
    auto* row = rows.make(place_of(hash), hash, id);
    EXPECT_EQ(first_of(row), 0) << "a new row is zeros, whatever its memory held";
    set_first(row, static_cast<float>(id));
  };
  const auto erase = [&](std::uint64_t id) {
    const auto hash = net::hash_row(id);
    ASSERT_TRUE(rows.erase(place_of(hash), hash, id));
  };
  for (std::uint64_t id = 0; id < count; ++id) make(id);
  const auto full = rows.memory_bytes();
  EXPECT_FALSE(rows.wants_tidying());
  // A row of the first slab stays.
  for (std::uint64_t id = 1; id < count; ++id) erase(id);
  EXPECT_LT(rows.memory_bytes(), full / 2) << "slabs without rows are released at once";
  EXPECT_TRUE(rows.wants_tidying());
  int slices = 1;
  while (rows.tidy([] { return true; })) {
    ++slices;
    EXPECT_TRUE(rows.wants_tidying()) << "it is not done";
  }
  EXPECT_GE(slices, static_cast<int>(partitions / 16));
  EXPECT_FALSE(rows.wants_tidying());
  const auto hash = net::hash_row(std::uint64_t{0});
  ASSERT_NE(rows.find(place_of(hash), hash, std::uint64_t{0}), nullptr);

  for (std::uint64_t id = 1; id < count; ++id) make(id);  // released numbers are used again
  std::set<float> met;
  for (std::uint64_t position = 0; const auto* row = rows.next(position);) met.insert(first_of(row));
  EXPECT_EQ(met.size(), count);
  EXPECT_LE(rows.memory_bytes(), full + full / 10);
  for (std::uint64_t id = 0; id < count; ++id) erase(id);
  while (rows.tidy([] { return false; })) {
  }
  EXPECT_EQ(rows.size(), 0U);
  EXPECT_LE(rows.memory_bytes(), empty + count / 4) << "all but a bit a row";
}

TEST(RowTable, ClearingIsOneShortStepAndTidyReleasesTheMemoryInSlices) {
  for (const bool named : {false, true}) {
    row_table rows({value_tag::f32, 16, 0, false}, partitions, named);
    const auto empty = rows.memory_bytes();
    constexpr std::uint64_t count = 400'000;  // four slabs
    const auto fill = [&] {
      for (std::uint64_t id = 0; id < count; ++id) {
        const auto name = "the name of row " + std::to_string(id);
        const auto hash = named ? net::hash_row(id + count) : net::hash_row(id);
        auto* row = named ? rows.make(place_of(hash), hash, name) : rows.make(place_of(hash), hash, id);
        ASSERT_EQ(first_of(row), 0) << "a new row is zeros, whatever its memory held";
        set_first(row, 1);
      }
    };
    fill();
    rows.clear();
    EXPECT_EQ(rows.size(), 0U);
    EXPECT_LE(rows.memory_bytes(), empty);
    EXPECT_TRUE(rows.wants_tidying());
    fill();  // over what has not been released yet
    EXPECT_EQ(rows.size(), count);
    rows.clear();
    int slices = 1;
    while (rows.tidy([] { return true; })) ++slices;
    EXPECT_GE(slices, static_cast<int>(partitions / 16) + 4) << "one for each slab";
    EXPECT_FALSE(rows.wants_tidying());
    fill();
  }
}

TEST(RowTable, AFewErasedRowsAreNoReasonToTidy) {
  row_table rows({value_tag::f32, 4, 0, false}, partitions, false);
  constexpr std::uint64_t count = 16'000;
  for (std::uint64_t id = 0; id < count; ++id) rows.make(place_of(net::hash_row(id)), net::hash_row(id), id);
  const auto erase = [&](std::uint64_t id) { rows.erase(place_of(net::hash_row(id)), net::hash_row(id), id); };
  for (std::uint64_t id = 0; id < 800; ++id) erase(id);
  EXPECT_FALSE(rows.wants_tidying());
  for (std::uint64_t id = 800; id < 1100; ++id) erase(id);
  EXPECT_TRUE(rows.wants_tidying());
  while (rows.tidy([] { return false; })) {
  }
  EXPECT_FALSE(rows.wants_tidying());
}

TEST(RowTable, TidyingInSlicesShrinksEveryPartition) {
  const auto left = [](bool is_over) {
    row_table rows({value_tag::f32, 4, 0, false}, partitions, false);
    for (std::uint64_t id = 0; id < 200'000; ++id) rows.make(place_of(net::hash_row(id)), net::hash_row(id), id);
    for (std::uint64_t id = 100; id < 200'000; ++id) rows.erase(place_of(net::hash_row(id)), net::hash_row(id), id);
    while (rows.tidy([&] { return is_over; })) {
    }
    return rows.memory_bytes();
  };
  EXPECT_EQ(left(true), left(false));
}

// ---- initialisers ---------------------------------------------------------------------------------------------------

template <class T>
std::vector<T> filled(const row_init& init, std::uint64_t id, std::size_t width) {
  std::vector<T> row(width);
  init.fill(id, std::span(row));
  return row;
}

TEST(RowInit, ARowIsAPureFunctionOfSeedAndId) {
  for (const auto& [one, other] : {std::pair{row_init::uniform(-1, 1, 7), row_init::uniform(-1, 1, 8)},
                                   std::pair{row_init::normal(0, 1, 7), row_init::normal(0, 1, 8)}}) {
    EXPECT_EQ(filled<float>(one, 3, 16), filled<float>(one, 3, 16));
    EXPECT_NE(filled<float>(one, 3, 16), filled<float>(one, 4, 16));
    EXPECT_NE(filled<float>(one, 3, 16), filled<float>(other, 3, 16));
    const auto wide = filled<double>(one, 3, 17);
    const auto narrow = filled<double>(one, 3, 5);
    EXPECT_EQ(std::vector<double>(wide.begin(), wide.begin() + 5), narrow) << "number j does not depend on the width";
  }
}

// If these numbers change, all models that start from them change.
TEST(RowInit, ItsNumbersArePinned) {
  EXPECT_EQ(filled<double>(row_init::uniform(0, 1, 1), 1, 1)[0], 0x1.0d2b8aa18ee24p-3);
  EXPECT_NEAR(filled<double>(row_init::normal(0, 1, 1), 1, 1)[0], 0.39012950258901918, 1e-12);
}

TEST(RowInit, UniformAndNormalHaveTheirMoments) {
  constexpr std::size_t rows = 20'000, width = 16;
  const auto moments = [&](const row_init& init) {
    double sum = 0, squares = 0, cross = 0, low = 1e9, high = -1e9;
    for (std::uint64_t id = 0; id < rows; ++id) {
      const auto r = filled<double>(init, id, width);
      for (std::size_t j = 0; j < width; ++j) {
        sum += r[j];
        squares += r[j] * r[j];
        low = std::min(low, r[j]);
        high = std::max(high, r[j]);
        if (j > 0) cross += r[j] * r[j - 1];
      }
    }
    const double n = rows * width;
    return std::vector<double>{sum / n, squares / n, cross / (rows * (width - 1.0)), low, high};
  };
  const auto u = moments(row_init::uniform(-1, 1, 42));
  EXPECT_NEAR(u[0], 0, 0.005);  // standard deviation of the mean: 0.577 / sqrt(320,000) = 0.001
  EXPECT_NEAR(u[1], 1.0 / 3, 0.005);
  EXPECT_NEAR(u[2], 0, 0.005) << "neighbours are independent";
  EXPECT_GE(u[3], -1);
  EXPECT_LT(u[4], 1);
  const auto g = moments(row_init::normal(0, 2, 42));
  EXPECT_NEAR(g[0], 0, 0.02);
  EXPECT_NEAR(g[1], 4, 0.06);
  EXPECT_NEAR(g[2], 0, 0.04);
  EXPECT_LT(g[3], -7);
  EXPECT_GT(g[4], 7);
  EXPECT_EQ(filled<float>(row_init::constant(0.5), 9, 3), (std::vector<float>{0.5, 0.5, 0.5}));
  EXPECT_EQ(filled<std::int64_t>(row_init::zeros(), 9, 2), (std::vector<std::int64_t>{0, 0}));
}

}  // namespace
}  // namespace paracel::srv
