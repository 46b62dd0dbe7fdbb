// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::HasSubstr;

const std::string filters = "libfilters.so";

test::cluster_options three_servers(std::size_t workers = 1) {
  return {.workers = workers, .servers = 3, .threads = 2, .plugin_folders = {test::plugin_folder()}};
}

dict_type<std::string, double> numbered_keys(int n, unsigned seed) {
  std::mt19937 random(seed);
  dict_type<std::string, double> d;
  for (int i = 0; i < n; ++i) d["k" + std::to_string(i)] = static_cast<double>(random() % 1000) / 1000;
  return d;
}

TEST(Scans, ReadallAndItsHandleGiveEverythingOnce) {
  cluster c(three_servers());
  c.run([](Comm comm) {
    paralg a("", comm);
    EXPECT_TRUE(a.paracel_readall<double>().empty());
    const auto model = numbered_keys(100'000, 1);
    a.paracel_write_multi(model);
    EXPECT_EQ(a.paracel_readall<double>(), model);

    dict_type<std::string, double> seen;
    int twice = 0;
    a.paracel_readall_handle<double>([&](const std::string& key, double value) {
      if (!seen.emplace(key, value).second) ++twice;
    });
    EXPECT_EQ(twice, 0);
    EXPECT_EQ(seen, model);

    // Like programs for Paracel 0.3: a named handler of dictionaries.
    std::size_t in_dictionaries = 0;
    auto handler = [&](const dict_type<std::string, double>& d) { in_dictionaries += d.size(); };
    a.paracel_readall_handle<double>(handler);
    EXPECT_EQ(in_dictionaries, model.size());
    EXPECT_EQ(a.paracel_count(), model.size());
    EXPECT_EQ(a.paracel_count("k99"), 1111U);
  });
}

TEST(Scans, AHandlerMayUseTheServersAndEndTheScan) {
  cluster c(three_servers());
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write_multi(numbered_keys(2000, 2));
    std::size_t n = 0;
    a.paracel_readall_handle<double>([&](const std::string& key, double value) {
      if (++n % 100 == 0) {
        EXPECT_EQ(a.paracel_read<double>(key), value);
        a.paracel_bupdate("k" + std::to_string(n % 2000), 0.0);
      }
      if (n == 500) {
        EXPECT_GE(a.paracel_keys("k").size(), 2000U) << "a scan within a scan";
      }
    });
    EXPECT_GE(n, 2000U);
    const auto enough = [](const std::string&, double) { throw key_error("enough"); };
    EXPECT_THROW(a.paracel_readall_handle<double>(enough), key_error);
    EXPECT_EQ(a.paracel_count(), 2000U) << "what was under way does no harm";
    EXPECT_THROW((void)a.paracel_readall<std::vector<double>>(), type_error);
    EXPECT_EQ(a.paracel_count("k1"), 1111U);
  });
}

TEST(Scans, SpecialReadsAndRemovesAgreeWithAMap) {
  cluster c(three_servers());
  c.run([](Comm comm) {
    paralg a("", comm);
    EXPECT_THROW((void)a.paracel_read_special<double>(), plugin_error) << "none is registered";
    auto model = numbered_keys(20'000, 3);
    a.paracel_write_multi(model);
    const auto chosen = [&](const auto& takes) {
      auto some = model;
      std::erase_if(some, [&](const auto& kv) { return !takes(kv.first, kv.second); });
      return some;
    };
    const auto sevens = chosen([](const auto& key, double) { return key.ends_with('7'); });
    const auto halves = chosen([](const auto&, double value) { return value >= 0.5; });
    EXPECT_EQ(a.paracel_read_special<double>(filters, "ends_with_seven"), sevens);
    EXPECT_EQ(a.paracel_read_special<double>(filters, "at_least_half"), halves);
    a.paracel_register_read_special(filters, "at_least_half");
    EXPECT_EQ(a.paracel_read_special<double>(), halves);
    std::size_t n = 0;
    a.paracel_read_special_handle<double>([&](const std::string& key, double) { n += halves.contains(key) ? 1 : 0; });
    EXPECT_EQ(n, halves.size());
    n = 0;
    auto old_handler = [&](dict_type<std::string, double>& d) { n += d.size(); };
    a.paracel_read_special_handle<double>(filters, "ends_with_seven", old_handler);
    EXPECT_EQ(n, sevens.size());

    EXPECT_EQ(a.paracel_remove_special(filters, "ends_with_seven"), sevens.size());
    std::erase_if(model, [](const auto& kv) { return kv.first.ends_with('7'); });
    EXPECT_EQ(a.paracel_readall<double>(), model);
    a.paracel_register_remove_special(filters, "at_least_half");
    const auto left = chosen([](const auto&, double value) { return value < 0.5; });
    EXPECT_EQ(a.paracel_remove_special(), model.size() - left.size());
    EXPECT_EQ(a.paracel_readall<double>(), left);

    try {
      a.paracel_write("bad", 1.0);
      (void)a.paracel_read_special<double>(filters, "throws_at_bad");
      FAIL() << "no error";
    } catch (const plugin_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("libfilters.so:throws_at_bad: does not like this key"));
      EXPECT_THAT(e.what(), HasSubstr("\"bad\""));
    }
    EXPECT_THROW((void)a.paracel_read_special<double>(filters, "longer_than_two"), type_error);
    EXPECT_THROW((void)a.paracel_read_special<double>(filters, "not_a_filter"), plugin_error);
  });
}

TEST(Scans, TopKAndSummariesAgreeWithASort) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    cluster c(three_servers());
    c.run([seed](Comm comm) {
      paralg a("", comm);
      const auto model = numbered_keys(30'000, seed);
      a.paracel_write_multi(model);
      a.paracel_write("text", "not a number");
      std::vector<std::pair<std::string, double>> sorted(model.begin(), model.end());
      std::ranges::sort(sorted, [](const auto& x, const auto& y) {
        return x.second != y.second ? x.second > y.second : x.first < y.first;
      });
      list_type<std::pair<std::string, double>> top;
      a.paracel_read_topk(100, top);
      EXPECT_TRUE(std::ranges::equal(top, std::span(sorted).first(100)));
      EXPECT_EQ(a.paracel_read_topk<double>(40'000).size(), 30'000U);
      EXPECT_TRUE(a.paracel_read_topk<double>(0).empty());
      EXPECT_THROW((void)a.paracel_read_topk<double>(-1), config_error);
      a.paracel_read_topk_with_key_filter(10, top, filters, "ends_with_seven");
      std::erase_if(sorted, [](const auto& kv) { return !kv.first.ends_with('7'); });
      EXPECT_TRUE(std::ranges::equal(top, std::span(sorted).first(10)));

      double sum = 0;
      std::vector<std::uint64_t> bins(4);
      for (const auto& [key, value] : model) {
        sum += value;
        ++bins[std::min<std::size_t>(static_cast<std::size_t>(value * 4), 3)];
      }
      const auto s = a.paracel_summary();
      EXPECT_EQ(s.keys, 30'001U);
      EXPECT_EQ(s.numbers, 30'000U);
      EXPECT_NEAR(s.sum, sum, 1e-9 * sum);
      EXPECT_EQ(a.paracel_sum(), s.sum);
      EXPECT_EQ(a.paracel_histogram(0, 1, 4).bins, bins);
      EXPECT_EQ(a.paracel_histogram(2, 3, 1).below, 30'000U);
      EXPECT_THROW((void)a.paracel_histogram(1, 1, 4), config_error);
      EXPECT_THROW((void)a.paracel_histogram(0, 1, 0), config_error);

      std::set<std::string> names;
      a.paracel_keys("k2", [&](const std::string& key) { names.insert(key); });
      const auto list = a.paracel_keys("k2");
      EXPECT_EQ(names, std::set<std::string>(list.begin(), list.end()));
      EXPECT_EQ(list.size(), 11'111U);
    });
  }
}

TEST(Scans, ManyLargeValuesNeedNoLargeMessage) {
  cluster c(three_servers());
  c.run([](Comm comm) {
    paralg a("", comm);
    // 60 MB, in chunks of 4 MiB; one value is larger than a chunk.
    for (int i = 0; i < 60; ++i) a.paracel_write("v" + std::to_string(i), std::vector<double>(125'000, i));
    a.paracel_write("huge", std::vector<double>(1'000'000, 7));
    std::set<std::string> seen;
    double sum = 0;
    a.paracel_readall_handle<std::vector<double>>([&](const std::string& key, const std::vector<double>& v) {
      EXPECT_TRUE(seen.insert(key).second);
      sum += v.back();
    });
    EXPECT_EQ(seen.size(), 61U);
    EXPECT_EQ(sum, 60 * 59 / 2 + 7);
    EXPECT_EQ(a.paracel_sum("v"), 125'000.0 * (60 * 59 / 2));
  });
}

/// The rule of paralg.hpp: with s = 0 a scan after iteration c contains every worker's first c iterations.
TEST(Scans, SeeWhatTheStalenessPromises) {
  for (const auto model : {consistency_model::ssp, consistency_model::bsp}) {
    constexpr std::size_t workers = 4;
    cluster c(three_servers(workers));
    c.run([model](Comm comm) {
      paralg a("", comm, "", 1000, 0, true);
      a.set_consistency(model);
      for (int round = 1; round <= 20; ++round) {
        for (int i = 0; i < 5; ++i) a.paracel_update("k" + std::to_string(i), 1.0);
        a.iter_commit();
        const double least = static_cast<double>(5 * workers) * round;
        const auto sum = a.paracel_sum("k");
        EXPECT_GE(sum, least);
        // No worker is more than one round ahead; under BSP its updates of that round are not visible.
        EXPECT_LE(sum, model == consistency_model::bsp ? least : least + 5 * (workers - 1));
        double all = 0;
        for (const auto& [key, value] : a.paracel_readall<double>()) all += value;
        EXPECT_GE(all, least);
        if (model == consistency_model::bsp) {
          EXPECT_EQ(all, least);
        }
      }
    });
  }
}

/// A long scan consists of many slices: other requests are served in between.
TEST(Scans, ALongScanDoesNotHoldOthersUp) {
  cluster c({.workers = 2, .servers = 1, .threads = 1, .plugin_folders = {test::plugin_folder()}});
  std::atomic<bool> scanned{false};
  c.run([&](Comm comm) {
    using clock = std::chrono::steady_clock;
    paralg a("", comm);
    if (a.get_worker_id() == 0) {
      a.paracel_write_multi(numbered_keys(30'000, 5));
    }
    a.paracel_sync();
    if (a.get_worker_id() == 0) {
      // 30,000 calls of a filter that takes at least 20 us: over half a second.
      const auto begun = clock::now();
      EXPECT_GE(a.paracel_read_special<double>(filters, "takes_its_time").size(), 30'000U);
      EXPECT_GT(clock::now() - begun, std::chrono::milliseconds(500));
      scanned = true;
    } else {
      std::vector<double> waits;
      while (!scanned) {
        const auto begun = clock::now();
        a.paracel_bupdate("own", 1.0);
        waits.push_back(std::chrono::duration<double, std::milli>(clock::now() - begun).count());
      }
      ASSERT_GT(waits.size(), 50U);
      std::ranges::sort(waits);
      EXPECT_LT(waits[waits.size() / 2], 20);
      EXPECT_LT(waits.back(), 300) << "ten times as long as a busy machine needs, and half of the scan";
      EXPECT_EQ(a.paracel_read<double>("own"), static_cast<double>(waits.size()));
    }
  });
}

}  // namespace
}  // namespace paracel
