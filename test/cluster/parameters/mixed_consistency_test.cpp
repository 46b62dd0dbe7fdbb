// SPDX-License-Identifier: BSD-3-Clause
//
// Keys and tables of different consistencies in one algorithm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::HasSubstr;

constexpr std::uint32_t staleness = 2;

// Weights by SSP, counters by BSP, a flag by ASP.
struct mixed : paralg {
  explicit mixed(Comm comm) : paralg("", comm, "", 1, consistency::ssp(staleness)) {
    set_consistency("counts", consistency::bsp());
    set_consistency("flag", consistency::asp());
  }
};

TEST(MixedConsistency, EachKeyIsReadByItsOwnRule) {
  constexpr int rounds = 30;
  for (const std::uint32_t replicas : {1U, 2U}) {
    cluster c({.workers = 3, .servers = 2, .replicas = replicas});
    c.run([](Comm comm) {
      mixed a(comm);
      const auto me = std::to_string(comm.get_rank());
      if (comm.get_rank() == 0) {
        a.paracel_write("w", 0.0);
        a.paracel_write("counts", 0.0);
      }
      comm.synchronize();
      const auto set = a.paracel_prepare({"counts", "counts_of" + me});
      for (int round = 0; round < rounds; ++round) {
        if (round % 3 == static_cast<int>(comm.get_rank())) std::this_thread::sleep_for(std::chrono::milliseconds{3});
        const auto w = a.paracel_read<double>("w");
        EXPECT_GE(w, 2 * (round - static_cast<int>(staleness)) + round) << "what was read may be older than allowed";
        EXPECT_LE(w, 3 * rounds);
        EXPECT_EQ(a.paracel_read<double>("counts"), 3.0 * round);
        a.paracel_update("w", 1.0);
        a.paracel_update("counts", 1.0);
        a.paracel_update("counts_of" + me, 1.0);
        EXPECT_EQ(a.paracel_read<double>("counts"), 3.0 * round) << "an own update before its commit";
        a.iter_commit();
        std::vector<double> both(2);
        a.paracel_read(set, std::span<double>(both));
        EXPECT_THAT(both, testing::ElementsAre(3.0 * (round + 1), round + 1.0));
        EXPECT_EQ(a.paracel_sum("counts_"), 3.0 * (round + 1)) << "a scan of a prefix has its rule";
      }
      a.paracel_sync();
      EXPECT_EQ(a.paracel_read<double>("w"), 3.0 * rounds);
    });
  }
}

// Worker 0 does not finish its first iteration before worker 1 says that it has finished two: that one must not wait
// for more than its weights need.
TEST(MixedConsistency, AReadWaitsOnlyForWhatItsOwnKeyNeeds) {
  cluster c({.workers = 2, .servers = 2});
  c.run([](Comm comm) {
    mixed a(comm);
    if (comm.get_rank() == 0) {
      for (const char* key : {"w", "counts", "flag"}) a.paracel_write(key, 0.0);
    }
    comm.synchronize();
    if (comm.get_rank() == 0) {
      while (a.paracel_read<double>("flag") == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      a.paracel_update("counts", 10.0);
      a.iter_commit();
      a.iter_commit();
      return;
    }
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(a.paracel_read<double>("w"), round);
      a.paracel_update("w", 1.0);
      a.paracel_update("counts", 1.0);
      a.iter_commit();
    }
    (void)a.paracel_read<double>("w");
    a.paracel_bupdate("flag", 1.0);
    EXPECT_EQ(a.paracel_read<double>("counts"), 12) << "this one waits for worker 0";
  });
}

TEST(MixedConsistency, ATableHasTheRuleOfItsName) {
  cluster c({.workers = 2, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.set_consistency("staged", consistency::bsp());
    table<double> staged(a, "staged_rows", 1);
    table<double> other(a, "rows", 1);
    const std::array<std::uint64_t, 1> id{7};
    std::vector<double> row(1);
    for (int round = 0; round < 5; ++round) {
      staged.update(id, std::vector<double>{1.0});
      const std::array<std::uint64_t, 1> own{100 + comm.get_rank()};
      other.update(own, std::vector<double>{1.0});
      staged.pull(id, row);
      EXPECT_EQ(row[0], 2.0 * round);
      other.pull(own, row);
      EXPECT_EQ(row[0], round + 1.0);
      a.iter_commit();
      staged.pull(id, row);
      EXPECT_EQ(row[0], 2.0 * (round + 1));
    }
  });
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const config_error& e) {
    return e.what();
  }
  return "nothing was refused";
}

TEST(MixedConsistency, TheLongestPrefixCountsAndContradictionsAreRefused) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.set_consistency("a", consistency::ssp(3));
    a.set_consistency("a_long", consistency::bsp());
    a.set_consistency("a_", consistency::ssp(1));
    EXPECT_EQ(a.get_consistency(), consistency_model::asp);
    EXPECT_EQ(a.get_consistency("b"), consistency::asp());
    EXPECT_EQ(a.get_consistency("a"), consistency::ssp(3));
    EXPECT_EQ(a.get_consistency("a_lon"), consistency::ssp(1));
    EXPECT_EQ(a.get_consistency("a_longer"), consistency::bsp());
    a.set_consistency("a_", consistency::ssp(2));
    EXPECT_EQ(a.get_consistency("a_lon"), consistency::ssp(2));

    EXPECT_THAT(refusal([&] { a.set_consistency("", consistency::bsp()); }), HasSubstr("an empty prefix"));
    const auto of_one =
        HasSubstr("\"b\" has the consistency asp and \"a_1\" ssp (2): want keys of one consistency in a call");
    EXPECT_THAT(refusal([&] { (void)a.paracel_read_multi<double>({"b", "b1", "a_1"}); }), of_one);
    EXPECT_THAT(refusal([&] { a.paracel_update_multi({"b", "a_1"}, std::vector<double>{1, 1}); }), of_one);
    EXPECT_THAT(refusal([&] {
                  a.paracel_write_multi(dict_type<str_type, double>{{"b", 1}, {"b1", 1}, {"a_1", 1}});
                }),
                HasSubstr("want keys of one consistency in a call"));
    EXPECT_THAT(refusal([&] { (void)a.paracel_prepare({"b", "a_1"}); }), of_one);
    EXPECT_FALSE(a.paracel_contains("b")) << "what was refused has changed nothing";
    (void)a.paracel_prepare({"b", "b1"});
    EXPECT_THAT(refusal([&] { a.set_consistency("c", consistency::bsp()); }),
                HasSubstr("the consistency of \"c\" must be set before any key set is prepared"));
  });
}

}  // namespace
}  // namespace paracel
