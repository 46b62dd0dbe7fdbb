// SPDX-License-Identifier: BSD-3-Clause
//
// Prepared key sets compared with the same operations by key.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/four_workers.hpp"

namespace paracel {
namespace {

using test::cluster;

std::vector<std::string> names(std::size_t n, const std::string& prefix = "weight_") {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < n; ++i) keys.push_back(prefix + std::to_string(i));
  return keys;
}

TEST(KeySet, ReadsWritesAndUpdatesInTheOrderOfItsKeys) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    const auto keys = names(1000);
    const auto set = a.paracel_prepare(keys);
    EXPECT_EQ(set.size(), keys.size());
    EXPECT_EQ(set.keys(), keys);
    std::vector<float> values;
    EXPECT_THROW(a.paracel_read(set, values), key_error);
    std::vector<float> first(keys.size());
    for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i);
    a.paracel_update(set, first);  // creates them
    a.paracel_read(set, values);
    EXPECT_EQ(values, first);
    EXPECT_EQ(a.paracel_read<float>("weight_77"), 77.0F);
    EXPECT_TRUE(a.paracel_update(set, first).get());
    std::vector<double> wide;
    a.paracel_read(set, wide);  // wider without loss
    EXPECT_EQ(wide[500], 1000.0);
    std::vector<float> back;
    a.paracel_bupdate_get(set, first, back);
    EXPECT_EQ(back[500], 1500.0F);
    EXPECT_TRUE(a.paracel_bupdate(set, first));
    EXPECT_EQ(a.paracel_read<float>("weight_500"), 2000.0F);
    a.paracel_write(set, first);
    std::vector<float> into(keys.size());
    a.paracel_read(set, std::span<float>(into));
    EXPECT_EQ(into, first);
    std::vector<float> small(3);
    EXPECT_THROW(a.paracel_read(set, std::span<float>(small)), type_error);
    std::vector<std::int32_t> narrow;
    EXPECT_THROW(a.paracel_read(set, narrow), type_error);
    EXPECT_THROW(a.paracel_update(set, small), error);
  });
}

TEST(KeySet, HoldsVectorsAndAnythingElse) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    const auto rows = a.paracel_prepare(names(300, "row_"));
    std::vector<double> flat(300 * 5);
    for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = static_cast<double>(i);
    a.paracel_write(rows, flat);
    a.paracel_update(rows, flat);
    EXPECT_EQ(a.paracel_read<std::vector<double>>("row_1"), (std::vector<double>{10, 12, 14, 16, 18}));
    std::vector<double> got;
    a.paracel_read(rows, got);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 2 * flat[i]);
    std::vector<std::vector<double>> lists;
    a.paracel_read(rows, lists);
    EXPECT_EQ(lists[299], (std::vector<double>{2990, 2992, 2994, 2996, 2998}));

    const auto words = a.paracel_prepare({"a", "b", "c"});
    const std::vector<std::string> said{"x", "yy", "zzz"};
    a.paracel_write(words, said);
    std::vector<std::string> heard;
    a.paracel_read(words, heard);
    EXPECT_EQ(heard, said);
    EXPECT_THROW(a.paracel_read(words, got), type_error);
    const key_set none;
    a.paracel_read(none, got);
    EXPECT_TRUE(got.empty());
  });
}

TEST(KeySet, KeysThatAreRemovedRetypedOrClearedMeanwhileAreSeen) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    cluster c({.workers = 1, .servers = 2, .threads = 2});
    c.run([seed](Comm comm) {
      paralg a("", comm);
      std::mt19937 random(seed);
      const auto keys = names(40);
      const auto set = a.paracel_prepare(keys);
      const auto half = a.paracel_prepare({keys.begin() + 10, keys.begin() + 30});
      std::map<std::string, double> model;
      for (int round = 0; round < 400; ++round) {
        const auto& key = keys[random() % keys.size()];
        switch (random() % 8) {
          case 0:
            a.paracel_remove(key);
            model.erase(key);
            break;
          case 1:
            if (random() % 10 != 0) break;
            a.paracel_clear();
            model.clear();
            break;
          case 2:
            a.paracel_write(key, model[key] = static_cast<double>(round));
            break;
          case 3: {  // another type: then the first one again
            a.paracel_write(key, "text");
            std::vector<double> out;
            EXPECT_THROW(a.paracel_read(set, out), error);
            a.paracel_write(key, model[key] = 0.5);
            break;
          }
          case 4:
          case 5: {
            const auto& s = random() % 2 == 0 ? set : half;
            std::vector<double> deltas(s.size());
            for (std::size_t i = 0; i < deltas.size(); ++i) {
              deltas[i] = static_cast<double>(random() % 100);
              model[s.keys()[i]] += deltas[i];
            }
            a.paracel_update(s, deltas);
            break;
          }
          default: {
            const auto& s = random() % 2 == 0 ? set : half;
            std::vector<double> out;
            bool all = true;
            for (const auto& k : s.keys()) all = all && model.contains(k);
            if (!all) {
              EXPECT_THROW(a.paracel_read(s, out), key_error);
              break;
            }
            a.paracel_read(s, out);
            for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], model[s.keys()[i]]) << s.keys()[i];
          }
        }
      }
      a.paracel_wait();
    });
  }
}

class KeySetConsistency : public testing::TestWithParam<consistency_model> {};

TEST_P(KeySetConsistency, FourWorkersAddThroughOverlappingSetsAndByName) {
  constexpr std::size_t workers = 4;
  constexpr int rounds = 40;
  test::run_four_workers(GetParam(), rounds, [](paralg& a) {
    const auto keys = names(200);
    const auto low = a.paracel_prepare({keys.begin(), keys.begin() + 150});
    const auto high = a.paracel_prepare({keys.begin() + 50, keys.end()});
    if (a.get_worker_id() == 0) a.paracel_write(a.paracel_prepare(keys), std::vector<std::int64_t>(200, 0));
    a.paracel_sync();
    for (int i = 0; i < rounds; ++i) {
      std::vector<std::int64_t> seen;
      a.paracel_read(low, seen);
      std::vector<std::int64_t> named;
      named = a.paracel_read_multi<std::int64_t>(low.keys());
      for (std::size_t k = 0; k < seen.size(); ++k) {
        // Key 0 is updated once a round by every worker, and by nothing else.
        const auto least = GetParam() == consistency_model::bsp ? i * 4 : i;
        if (k == 0 && GetParam() != consistency_model::asp) {
          ASSERT_GE(seen[k], least);
        }
        if (GetParam() == consistency_model::bsp) {
          ASSERT_EQ(seen[k], named[k]) << "by name and by set, at one clock";
        }
      }
      a.paracel_update(low, std::vector<std::int64_t>(150, 1));
      a.paracel_update(high, std::vector<std::int64_t>(150, 1));
      a.paracel_update("weight_100", std::int64_t{1});
      a.iter_commit();
    }
    a.paracel_sync();
    std::vector<std::int64_t> low_values;
    std::vector<std::int64_t> high_values;
    a.paracel_read(low, low_values);
    a.paracel_read(high, high_values);
    constexpr std::int64_t each = workers * rounds;
    for (std::size_t k = 0; k < 150; ++k) ASSERT_EQ(low_values[k], k == 100 ? 3 * each : k < 50 ? each : 2 * each) << k;
    for (std::size_t k = 100; k < 150; ++k) ASSERT_EQ(high_values[k], each);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, KeySetConsistency,
                         testing::Values(consistency_model::asp, consistency_model::ssp, consistency_model::bsp));

TEST(KeySet, UnderSspTheCacheSeesOwnUpdatesOfASet) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 100, 3, true);
    const auto set = a.paracel_prepare({"x", "y"});
    a.paracel_write(set, std::vector<double>{1, 2});
    EXPECT_EQ(a.paracel_read<double>("x"), 1);
    a.paracel_update(set, std::vector<double>{10, 20});
    EXPECT_EQ(a.paracel_read<double>("x"), 11);
    a.paracel_bupdate(set, std::vector<double>{10, 20});
    EXPECT_EQ(a.paracel_read<double>("x"), 21);
    a.paracel_write(set, std::vector<double>{5, 6});
    EXPECT_EQ(a.paracel_read<double>("x"), 5);
    a.paracel_write("y", "text");
    EXPECT_EQ(a.paracel_read<std::string>("y"), "text");
    EXPECT_THROW(a.paracel_update(set, std::vector<double>{1, 1}).get(), type_error);
    EXPECT_EQ(a.paracel_read<double>("x"), 6) << "one key failed, the other did not";
    EXPECT_EQ(a.paracel_read<std::string>("y"), "text");
  });
}

}  // namespace
}  // namespace paracel
