// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous calls: the order of operations, callbacks, and failures of futures that are never waited for.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using test::cluster;

TEST(Async, AFutureTellsWhetherTheKeyWasThere) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("k", 1.5);
    double value = 0;
    double untouched = 7;
    auto there = a.paracel_read_async("k", value);
    auto missing = a.paracel_read_async("no_such_key", untouched);
    EXPECT_TRUE(there.valid());
    EXPECT_TRUE(there.get());
    EXPECT_FALSE(there.valid());
    EXPECT_EQ(value, 1.5);
    EXPECT_FALSE(missing.get());
    EXPECT_EQ(untouched, 7);
    EXPECT_THROW(there.get(), error) << "it was asked already";
    auto forgotten = a.paracel_read_async("no_such_key", untouched);
    EXPECT_NO_THROW(a.paracel_wait()) << "a key that is not there is an answer, not a failure";
    EXPECT_FALSE(forgotten.get()) << "also after the waiting point";
    std::future<bool> old_style = a.paracel_write_async("k", 2.5);
    EXPECT_TRUE(old_style.get());
    EXPECT_EQ(a.paracel_read<double>("k"), 2.5);
  });
}

TEST(Async, RequestsForOneKeyAreExecutedInTheOrderTheyWereMade) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    std::mt19937 random(11);
    std::map<std::string, std::int64_t> model;
    struct expected {
      std::int64_t got = -1;
      std::int64_t want = 0;
    };
    std::deque<expected> reads;
    std::deque<std::vector<std::int64_t>> lists;
    std::deque<std::vector<std::int64_t>> wanted;
    std::vector<std::string> keys;
    for (int i = 0; i < 12; ++i) {
      keys.push_back("key_" + std::to_string(i));
      a.paracel_write(keys.back(), std::int64_t{0});
      model[keys.back()] = 0;
    }
    const auto set = a.paracel_prepare(keys);
    for (int round = 0; round < 3000; ++round) {
      const auto& key = keys[random() % keys.size()];
      const std::int64_t x = static_cast<std::int64_t>(random() % 1000);
      switch (random() % 7) {
        case 0:
          a.paracel_update(key, x);
          model[key] += x;
          break;
        case 1:
          a.paracel_write_async(key, x);
          model[key] = x;
          break;
        case 2:
          reads.push_back({-1, model[key]});
          a.paracel_read_async(key, reads.back().got);
          break;
        case 3: {
          a.paracel_update_multi_async(keys, std::vector<std::int64_t>(keys.size(), x));
          for (auto& [k, v] : model) v += x;
          break;
        }
        case 4:
          a.paracel_update(set, std::vector<std::int64_t>(keys.size(), x));
          for (auto& [k, v] : model) v += x;
          break;
        default: {
          lists.emplace_back();
          if (random() % 2 == 0) a.paracel_read_multi_async(keys, lists.back());
          else a.paracel_read_async(set, lists.back());
          wanted.emplace_back();
          for (const auto& k : keys) wanted.back().push_back(model[k]);
        }
      }
      if (random() % 300 == 0) a.paracel_wait();
      if (random() % 50 == 0) a.paracel_poll();
    }
    a.paracel_wait();
    for (const auto& r : reads) ASSERT_EQ(r.got, r.want);
    for (std::size_t i = 0; i < lists.size(); ++i) ASSERT_EQ(lists[i], wanted[i]) << i;
  });
}

TEST(Async, CallbacksRunAtTheWaitingPointAndMayMakeRequestsOfEveryKind) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("start", std::int64_t{1});
    a.paracel_sync();
    int calls = 0;
    std::function<void(std::int64_t)> again = [&](std::int64_t seen) {
      EXPECT_EQ(seen, ++calls);
      if (calls == 20) return;
      a.paracel_update("start", std::int64_t{1});
      if (calls % 2 == 0) {
        EXPECT_EQ(a.paracel_read<std::int64_t>("start"), calls + 1) << "a callback may wait";
      }
      a.paracel_read_async<std::int64_t>("start", [&](const std::int64_t& v) { again(v); });
    };
    a.paracel_read_async<std::int64_t>("start", [&](const std::int64_t& v) { again(v); });
    EXPECT_EQ(calls, 0);
    double other = 0;
    a.paracel_write("other", 1.0);
    a.paracel_read("other", other);  // receives the reply, but does not wait
    EXPECT_EQ(calls, 0) << "a callback ran inside a read";
    a.paracel_wait();
    EXPECT_EQ(calls, 20);

    bool polled = false;
    a.paracel_read_async<double>("other", [&](const double& v) { polled = v == 1.0; });
    while (!polled) a.paracel_poll();
  });
}

TEST(Async, AFailureThatNobodyAskedForSurfacesAtTheNextWaitingPointOnce) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("text", "hello");
    (void)a.paracel_update("text", 1.5);
    EXPECT_THROW(a.paracel_wait(), type_error);
    EXPECT_NO_THROW(a.paracel_wait());

    bool called = false;
    a.paracel_read_async<double>("no_such_key", [&](const double&) { called = true; });
    try {
      a.paracel_wait();
      ADD_FAILURE() << "no error";
    } catch (const key_error& e) {
      EXPECT_NE(std::string(e.what()).find("no_such_key"), std::string::npos);
    }
    EXPECT_FALSE(called);

    double number = 0;
    auto wrong = a.paracel_read_async("text", number);
    EXPECT_THROW(wrong.get(), type_error);
    EXPECT_NO_THROW(a.paracel_wait()) << "the future told it";

    std::vector<double> values;
    (void)a.paracel_read_multi_async({"text", "gone"}, values);
    EXPECT_THROW(a.iter_commit(), error);
    EXPECT_NO_THROW(a.iter_commit());

    a.paracel_read_async<std::string>("text",
                                      [](const std::string&) { throw std::runtime_error("from the callback"); });
    EXPECT_THROW(a.paracel_wait(), std::runtime_error);
  });
}

TEST(Async, AFutureMayOutliveItsParalg) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    std::optional<paralg> a;
    a.emplace("", comm);
    auto kept = a->paracel_update("k", 1.0);
    auto dropped = a->paracel_update("k", 1.0);
    a.reset();
    EXPECT_THROW(kept.get(), error);
  });
}

TEST(Async, UnderSspAReadThatWasOvertakenByAnOwnUpdateIsNotRemembered) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 100, 3, true);
    a.paracel_write("k", std::int64_t{0});
    std::mt19937 random(5);
    std::int64_t model = 0;
    for (int i = 0; i < 500; ++i) {
      std::int64_t early = -1;
      const auto before = model;
      auto read = a.paracel_read_async("k", early);
      if (random() % 2 == 0) {
        a.paracel_update("k", std::int64_t{1});
        ++model;
      }
      if (random() % 8 == 0) a.paracel_write_async("k", model = 1000);
      EXPECT_TRUE(read.get());
      ASSERT_EQ(early, before);
      ASSERT_EQ(a.paracel_read<std::int64_t>("k"), model) << "an own update is missing";
      if (random() % 4 == 0) a.paracel_bupdate("k", std::int64_t{1}), ++model;
      if (random() % 10 == 0) a.iter_commit();
    }
  });
}

// The updates that are sent before a read may fill the client's window of open requests completely.
TEST(Async, SumsThatLeaveBeforeAReadTakeNoOpenRequestsPlace) {
  for (const std::size_t shards : {1, 2}) {
    cluster c({.workers = 1, .servers = shards});
    c.run([](Comm comm) {
      paralg a("", comm, "", 1, 1, true);
      a.set_consistency(consistency_model::ssp);
      a.paracel_write_multi(dict_type<str_type, double>{{"x", 1}, {"y", 2}, {"z", 3}});
      for (const int n : {1022, 1023, 1024, 2047}) {
        a.iter_commit();  // the cached value is too old
        a.iter_commit();
        for (int i = 0; i < n; ++i) a.paracel_update("k" + std::to_string(i), 1.0);
        EXPECT_EQ(a.paracel_read_multi<double>({"x", "y", "z"}), (std::vector<double>{1, 2, 3})) << n;
      }
      EXPECT_EQ(a.paracel_read<double>("k0"), 4);
      EXPECT_EQ(a.paracel_read<double>("k2046"), 1);
    });
  }
}

TEST(Async, AKeyThatIsTooLongFailsTheCallBeforeAnythingIsSent) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 1, 1, true);
    a.set_consistency(consistency_model::ssp);
    const std::string longest(70'000, 'k');
    a.paracel_write("k", 1.0);
    EXPECT_THROW(a.paracel_update_multi(std::vector<std::string>{longest, "k"}, std::vector<double>{1, 1}),
                 protocol_error);
    EXPECT_THROW((void)a.paracel_read_multi<double>({longest, "k"}), protocol_error);
    EXPECT_THROW(a.paracel_prepare({"k", longest}), protocol_error);
    a.paracel_update("k", 2.0);
    EXPECT_THROW(a.paracel_update(longest, 1.0), protocol_error) << "and not when others travel with it";
    a.iter_commit();
    double value = 0;
    a.paracel_read_version("k", value);
    EXPECT_EQ(value, 3);
  });
}

}  // namespace
}  // namespace paracel
