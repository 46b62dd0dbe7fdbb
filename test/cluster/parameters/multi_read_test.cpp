// SPDX-License-Identifier: BSD-3-Clause
//
// Reads of many keys of which some are in the worker's cache: these cost no message, whatever the others cost, and all
// of them are what single reads would return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/sanitized.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::HasSubstr;
using texts = list_type<str_type>;
using numbers = std::vector<double>;

/// Changes a value behind the worker's back, so that what a read returns tells where it comes from.
void push(server_group& other, const std::string& key, double value) {
  const encoded<double> e(value);
  other.wait(other.request({.what = net::verb::push}, key, e.view(), [](const kv_result& r) { EXPECT_TRUE(r.ok()); }));
}

TEST(MultiRead, AsksForTheKeysThatAreNotFresh) {
  cluster c({.workers = 1, .servers = 1});
  const auto other = c.client();
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    for (const std::string key : {"a", "b", "c", "d"}) push(*other, key, 1);
    EXPECT_EQ(a.paracel_read<double>("a"), 1);
    EXPECT_EQ(a.paracel_read<double>("c"), 1);
    for (const std::string key : {"a", "b", "c", "d"}) push(*other, key, 2);
    const auto before = c.requests_served();
    EXPECT_EQ(a.paracel_read_multi<double>({"d", "a", "b", "a", "d", "c"}), (numbers{2, 1, 2, 1, 2, 1}));
    EXPECT_EQ(c.requests_served(), before + 1);
    // Now all of them are in the cache.
    for (const std::string key : {"a", "b", "c", "d"}) push(*other, key, 3);
    const auto then = c.requests_served();
    EXPECT_EQ(a.paracel_read_multi<double>({"a", "b", "c", "d"}), (numbers{1, 2, 1, 2}));
    EXPECT_EQ(c.requests_served(), then);
    // An iteration later they may still be used, and then no more.
    a.iter_commit();
    EXPECT_EQ(a.paracel_read_multi<double>({"a", "b"}), (numbers{1, 2}));
    a.iter_commit();
    EXPECT_EQ(a.paracel_read<double>("b"), 3);
    EXPECT_EQ(a.paracel_read_multi<double>({"a", "b"}), (numbers{3, 3}));
  });
}

TEST(MultiRead, OwnUpdatesThatAreNotSentAreInEveryValueAndStayTogetherIfTheirKeyIsNotAskedFor) {
  cluster c({.workers = 1, .servers = 1});
  const auto other = c.client();
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    for (const std::string key : {"a", "b", "c"}) push(*other, key, 1);
    EXPECT_EQ(a.paracel_read<double>("a"), 1);
    for (const std::string key : {"a", "b", "c"}) push(*other, key, 10);
    for (const std::string key : {"a", "b", "c"}) a.paracel_update(key, 0.5);
    const auto before = c.requests_served();
    EXPECT_EQ(a.paracel_read_multi<double>({"b", "a"}), (numbers{10.5, 1.5}));
    EXPECT_EQ(c.requests_served(), before + 2) << "the update of b, and the read";
    a.iter_commit();
    EXPECT_EQ(a.paracel_read_multi<double>({"c", "b", "a"}), (numbers{10.5, 10.5, 1.5}));
    a.iter_commit();
    a.iter_commit();
    EXPECT_EQ(a.paracel_read_multi<double>({"c", "b", "a"}), (numbers{10.5, 10.5, 10.5}));
  });
}

TEST(MultiRead, StalenessIsThatOfTheOldestValue) {
  cluster c({.workers = 1, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 3, true);
    a.paracel_write_multi(dict_type<str_type, double>{{"old", 1}, {"new", 2}});
    a.paracel_read<double>("old");
    a.iter_commit();
    a.iter_commit();
    a.servers().cache().drop("new");
    EXPECT_EQ(a.paracel_read_multi<double>({"new", "old"}), (numbers{2, 1}));
    EXPECT_EQ(a.last_staleness(), 2U);
    EXPECT_EQ(a.paracel_read_multi<double>({"new"}), numbers{2});
    EXPECT_EQ(a.last_staleness(), 0U);
  });
}

TEST(MultiRead, KeysThatAreMissingOrOfAnotherTypeAreErrorsBesideFreshOnes) {
  cluster c({.workers = 1, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    a.paracel_write("number", 1.5);
    a.paracel_write("word", str_type("text"));
    EXPECT_EQ(a.paracel_read<double>("number"), 1.5);
    EXPECT_THROW((void)a.paracel_read_multi<double>({"number", "none"}), key_error);
    dict_type<str_type, double> those;
    a.paracel_read_multi(texts{"none", "number"}, those);
    EXPECT_EQ(those, (dict_type<str_type, double>{{"number", 1.5}}));
    for (const bool cached : {true, false}) {
      if (!cached) a.servers().cache().drop("word");
      try {
        (void)a.paracel_read_multi<double>({"number", "word"});
        ADD_FAILURE();
      } catch (const type_error& e) {
        EXPECT_THAT(e.what(), HasSubstr("\"word\""));
      }
    }
  });
}

/// Each worker has keys of its own, so it knows their values; lists of any length, repeated ones, with keys said twice.
TEST(MultiRead, ListsInAnyStateOfTheCacheAreWhatSingleReadsReturn) {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    for (const bool push_on : {false, true}) {
      cluster c({.workers = 2, .servers = 2, .threads = 2});
      c.run([&](Comm comm) {
        const int staleness = static_cast<int>(seed % 3);
        paralg a("", comm, "", 1 << 20, staleness, true);
        a.set_combining(seed % 2 == 0);
        a.set_push(push_on);
        const auto mine = std::to_string(a.get_worker_id()) + "_";
        std::mt19937 random(seed * 10 + static_cast<unsigned>(a.get_worker_id()));
        constexpr std::size_t keys = 150;
        std::map<std::string, double> now;
        const auto any = [&] { return mine + std::to_string(random() % keys); };
        std::vector<texts> lists(3);
        for (auto& list : lists)
          for (auto n = 1 + random() % 300; n > 0; --n) list.push_back(any());
        const auto write_all = [&] {
          for (std::size_t k = 0; k < keys; ++k) now[mine + std::to_string(k)] = static_cast<double>(random() % 100);
          a.paracel_write_multi(dict_type<str_type, double>(now.begin(), now.end()));
        };
        const auto check = [&](const texts& list, const std::vector<double>& got) {
          ASSERT_EQ(got.size(), list.size());
          for (std::size_t i = 0; i < list.size(); ++i) ASSERT_EQ(got[i], now[list[i]]) << seed << ' ' << list[i];
        };
        write_all();
        for (int step = 0; step < (test::sanitized ? 200 : 800); ++step) {
          switch (random() % 9) {
            case 0:
            case 1: {
              const auto& list = lists[random() % lists.size()];
              ASSERT_NO_FATAL_FAILURE(check(list, a.paracel_read_multi<double>(list)));
              break;
            }
            case 2: {
              texts list;
              for (auto n = random() % 20; n > 0; --n) list.push_back(any());
              std::vector<double> got;
              auto done = a.paracel_read_multi_async(list, got);
              if (random() % 2 == 0) a.paracel_update(any(), 0.0);
              ASSERT_TRUE(done.get());
              ASSERT_NO_FATAL_FAILURE(check(list, got));
              break;
            }
            case 3:
            case 4: {
              const auto key = any();
              ASSERT_EQ(a.paracel_read<double>(key), now[key]);
              break;
            }
            case 5:
            case 6: {
              const auto key = any();
              now[key] += 1;
              a.paracel_update(key, 1.0);
              break;
            }
            case 7: {
              const auto key = any();
              now[key] = static_cast<double>(random() % 100);
              a.paracel_write(key, now[key]);
              break;
            }
            default:
              a.servers().cache().drop(any());
          }
          if (step % 8 == 7) a.iter_commit();  // at the same steps everywhere: otherwise one may wait for the other
        }
        a.paracel_sync();
      });
    }
  }
}

}  // namespace
}  // namespace paracel
