// SPDX-License-Identifier: BSD-3-Clause
//
// Conditional writes: update_default, cas, incr, under every consistency model.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"

namespace paracel {
namespace {

using test::cluster;

TEST(UpdateDefault, WritesWhatIsMissingAndUpdatesTheRest) {
  cluster c({.workers = 1, .servers = 2, .threads = 2, .plugin_folders = {test::plugin_folder()}});
  c.run([](Comm comm) {
    paralg a("", comm);
    EXPECT_TRUE(a.paracel_update_default("n", 10.0, 1.0).get());
    EXPECT_EQ(a.paracel_read<double>("n"), 10.0);
    EXPECT_TRUE(a.paracel_update_default("n", 10.0, 1.0).get());
    EXPECT_EQ(a.paracel_read<double>("n"), 11.0);
    const std::vector<float> large(40'000, 2.0F);  // larger than what is sent in the same frame as the key
    for (int i = 0; i < 2; ++i) a.paracel_update_default("v", large, large);
    EXPECT_EQ(a.paracel_read<std::vector<float>>("v"), std::vector<float>(40'000, 4.0F));
    a.paracel_update_default("f", 1.0, 2.0, "server_updates", "times_ten_plus_update");
    a.paracel_update_default("f", 1.0, 2.0, "server_updates", "times_ten_plus_update");
    EXPECT_EQ(a.paracel_read<double>("f"), 12.0);
    a.paracel_write("words", std::vector<std::string>{"a"});
    auto refused = a.paracel_update_default("words", 1.0, 1.0);
    EXPECT_THROW((void)refused.get(), error) << "what is there is no number";
  });
}

TEST(UpdateDefault, CountsWordsInOneCall) {
  cluster c({.workers = 4, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    dict_type<str_type, std::int64_t> words;
    for (int i = 0; i < 100; ++i) words["w" + std::to_string(i)] = i;
    for (int round = 0; round < 5; ++round) a.paracel_update_default_multi(std::int64_t{1000}, words);
    a.paracel_sync();
    for (const auto& [word, n] : words) ASSERT_EQ(a.paracel_read<std::int64_t>(word), 1000 + 19 * n) << word;
    a.paracel_sync();
    if (a.get_worker_id() == 0) {
      EXPECT_TRUE(
          a.paracel_update_default_multi({"w1", "new"}, list_type<double>{5, 5}, list_type<std::int64_t>{1, 1}));
      EXPECT_EQ(a.paracel_read<double>("new"), 5.0);
      EXPECT_EQ(a.paracel_read<std::int64_t>("w1"), 1020);
      EXPECT_THROW(a.paracel_update_default_multi({"a"}, list_type<double>{1, 2}, list_type<double>{1}), error);
    }
  });
}

TEST(UpdateDefault, UnderBspTheFirstInRankOrderWrites) {
  std::vector<double> first;
  for (int run = 0; run < 3; ++run) {
    cluster c({.workers = 3, .servers = 2, .plugin_folders = {test::plugin_folder()}});
    c.run([&](Comm comm) {
      paralg a("", comm, "", 10);
      a.set_consistency(consistency_model::bsp);
      a.paracel_register_update("server_updates", "times_ten_plus_update");
      const auto rank = static_cast<double>(a.get_worker_id());
      std::vector<double> seen;
      for (int round = 0; round < 3; ++round) {
        a.paracel_update_default("k", 10 + rank, rank);
        a.iter_commit();
        seen.push_back(a.paracel_read<double>("k"));
      }
      EXPECT_EQ(seen[0], 1012.0) << "10 of rank 0, then the deltas of ranks 1 and 2";
      EXPECT_EQ(seen[1], 1012012.0);
      if (a.get_worker_id() == 0) {
        if (first.empty()) first = seen;
        EXPECT_EQ(seen, first);
      }
    });
  }
}

TEST(UpdateDefault, UnderSspOwnUpdatesAreSeenAtOnce) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10, 3, true);
    a.paracel_update_default("n", 5.0, 1.0);
    EXPECT_EQ(a.paracel_read<double>("n"), 5.0);
    a.paracel_update_default("n", 5.0, 1.0);
    EXPECT_EQ(a.paracel_read<double>("n"), 6.0) << "the cached copy is updated too";
    a.paracel_update_default_multi(5.0, dict_type<str_type, double>{{"n", 2.0}, {"m", 2.0}});
    EXPECT_EQ(a.paracel_read<double>("n"), 8.0);
    EXPECT_EQ(a.paracel_read<double>("m"), 5.0);
  });
}

TEST(Cas, OneOfTwoWithTheSameVersionWins) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    double value = -1;
    EXPECT_EQ(a.paracel_read_version("k", value), 0U);
    EXPECT_EQ(value, -1);
    std::uint64_t version = 0;
    EXPECT_TRUE(a.paracel_cas("k", version, 1.0));
    EXPECT_GT(version, 0U);
    EXPECT_EQ(a.paracel_read_version("k", value), version);
    EXPECT_EQ(value, 1.0);

    std::uint64_t late = 0;
    EXPECT_FALSE(a.paracel_cas("k", late, 2.0));
    EXPECT_EQ(late, version) << "the version that is there";
    EXPECT_TRUE(a.paracel_cas("k", late, 2.0));
    EXPECT_GT(late, version);
    EXPECT_FALSE(a.paracel_cas("k", version, 3.0));
    EXPECT_EQ(a.paracel_read<double>("k"), 2.0);

    EXPECT_TRUE(a.paracel_remove("k"));
    EXPECT_FALSE(a.paracel_cas("k", late, 4.0));
    EXPECT_EQ(late, 0U);
    EXPECT_TRUE(a.paracel_cas("k", late, "a text"));
    EXPECT_EQ(a.paracel_read<std::string>("k"), "a text");
    const std::vector<double> large(50'000, 0.5);
    EXPECT_TRUE(a.paracel_cas("k", late, large));
    EXPECT_EQ(a.paracel_read<std::vector<double>>("k"), large);
  });
}

TEST(Cas, ACounterOfEightWorkersLosesNothing) {
  cluster c({.workers = 8, .servers = 2, .threads = 2});
  constexpr int each = 50;
  c.run([](Comm comm) {
    paralg a("", comm);
    for (int i = 0; i < each; ++i) {
      std::int64_t n = 0;
      auto version = a.paracel_read_version("n", n);
      while (!a.paracel_cas("n", version, n + 1)) {
        n = 0;
        version = a.paracel_read_version("n", n);
      }
    }
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::int64_t>("n"), 8 * each);
  });
}

TEST(Cas, UnderSspItIsNotTakenForWhatIsCached) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 10, 5, true);
    a.paracel_write("k", 1.0);
    EXPECT_EQ(a.paracel_read<double>("k"), 1.0);
    const auto other = c.client();  // another client's write: the cached value is still fresh enough for a read
    const encoded<double> two(2.0);
    other->wait(other->request({.what = net::verb::push}, "k", two.view(), nullptr));
    EXPECT_EQ(a.paracel_read<double>("k"), 1.0);
    double value = 0;
    auto version = a.paracel_read_version("k", value);
    EXPECT_EQ(value, 2.0) << "from the server";
    other->wait(other->request({.what = net::verb::push}, "k", two.view(), nullptr));
    EXPECT_FALSE(a.paracel_cas("k", version, 3.0));
    EXPECT_EQ(a.paracel_read<double>("k"), 2.0) << "after a conflict nobody reads the cached copy";
    EXPECT_TRUE(a.paracel_cas("k", version, 3.0));
    EXPECT_EQ(a.paracel_read<double>("k"), 3.0);
  });
}

TEST(Cas, UnderBspItSeesTheUpdatesOfTheIterationsBefore) {
  cluster c({.workers = 2, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10);
    a.set_consistency(consistency_model::bsp);
    if (a.get_worker_id() == 0) a.paracel_write("k", 1.0);
    a.paracel_sync();
    double value = 0;
    auto version = a.paracel_read_version("k", value);
    a.paracel_sync();
    a.paracel_update("k", 1.0);
    a.iter_commit();
    if (a.get_worker_id() == 0) {
      EXPECT_FALSE(a.paracel_cas("k", version, 0.0));
      EXPECT_EQ(a.paracel_read_version("k", value), version);
      EXPECT_EQ(value, 3.0);
      EXPECT_TRUE(a.paracel_cas("k", version, 10.0));
    }
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<double>("k"), 10.0) << "immediate";
    a.iter_commit();
  });
}

TEST(Incr, ConcurrentIncrementsOfEightWorkersAreAllSeenOnce) {
  cluster c({.workers = 8, .servers = 2, .threads = 2});
  constexpr std::int64_t each = 200;
  c.run([](Comm comm) {
    paralg a("", comm);
    std::vector<std::int64_t> mine;
    for (std::int64_t i = 0; i < each; ++i) mine.push_back(a.paracel_incr("ticket", std::int64_t{1}));
    const auto all = comm.allgather(mine);
    std::vector<bool> seen(8 * each + 1);
    for (const auto& tickets : all)
      for (const auto t : tickets) {
        ASSERT_GE(t, 1);
        ASSERT_LE(t, 8 * each);
        EXPECT_FALSE(seen[static_cast<std::size_t>(t)]) << "ticket " << t << " was given twice";
        seen[static_cast<std::size_t>(t)] = true;
      }
  });
}

TEST(Updates, ConcurrentUpdatesOfEightWorkersSumExactly) {
  for (const auto model : {consistency_model::asp, consistency_model::ssp, consistency_model::bsp}) {
    cluster c({.workers = 8, .servers = 2, .threads = 2});
    c.run([&](Comm comm) {
      constexpr int rounds = 20;
      paralg a("", comm, "", rounds, 2, true);
      a.set_consistency(model);
      const auto rank = static_cast<std::int64_t>(a.get_worker_id());
      list_type<str_type> keys;
      list_type<std::int64_t> deltas;
      for (std::int64_t k = 0; k < 20; ++k) {
        keys.push_back("k" + std::to_string(k));
        deltas.push_back((rank + 1) * (k + 1));
      }
      const std::vector<std::int64_t> large(10'000, rank + 1);  // 80 kB, in a separate frame
      for (int round = 0; round < rounds; ++round) {
        a.paracel_update_multi(keys, deltas);
        a.paracel_update("single", rank + 1);
        a.paracel_update("large", large);
        if (round % 2 == 0) a.paracel_bupdate("now", std::int64_t{1});
        else a.paracel_incr("now", std::int64_t{1});
        (void)a.paracel_contains("single");
        a.iter_commit();
      }
      a.paracel_sync();
      for (std::int64_t k = 0; k < 20; ++k)
        EXPECT_EQ(a.paracel_read<std::int64_t>(keys[static_cast<std::size_t>(k)]), 36 * (k + 1) * rounds);
      EXPECT_EQ(a.paracel_read<std::int64_t>("single"), 36 * rounds);
      EXPECT_EQ(a.paracel_read<std::int64_t>("now"), 8 * rounds);
      EXPECT_EQ(a.paracel_read<std::vector<std::int64_t>>("large"), std::vector<std::int64_t>(10'000, 36 * rounds));
    });
  }
}

TEST(Updates, NamedFunctionsWorkInEveryForm) {
  cluster c({.workers = 1, .servers = 2, .plugin_folders = {test::plugin_folder()}});
  c.run([](Comm comm) {
    paralg a("", comm);
    const str_type file = "server_updates", f = "times_ten_plus_update";
    for (const double d : {1.0, 2.0}) {
      a.paracel_update_multi(list_type<str_type>{"a"}, list_type<double>{d}, file, f);
      a.paracel_update_multi(dict_type<str_type, double>{{"b", d}}, file, f);
      a.paracel_bupdate_multi(list_type<str_type>{"c"}, list_type<double>{d}, file, f);
      async_functor_type done;
      a.paracel_update("d", d, file, f, done);
      EXPECT_TRUE(done.get());
    }
    for (const auto* key : {"a", "b", "c", "d"}) EXPECT_EQ(a.paracel_read<double>(key), 12.0) << key;
  });
}

}  // namespace
}  // namespace paracel
