// SPDX-License-Identifier: BSD-3-Clause
//
// What a level of decision_tree_rec and a round of steady_state_inversion send, as stated in their READMEs: the
// reductions are counted between the algorithm and the scheduler.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <paracel/random.hpp>

#include "alg/decision_tree_rec/dtr.hpp"
#include "alg/steady_state_inversion/steady_state_inversion.hpp"
#include "test/support/cluster.hpp"
#include "test/support/counting_backend.hpp"

namespace paracel {
namespace {

namespace fs = std::filesystem;
using test::cluster;
using test::collective_log;
using enum test::collective_kind;

class ReductionCost : public testing::Test {
 protected:
  ReductionCost() {
    std::string pattern = (fs::temp_directory_path() / "reduction_cost_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ReductionCost() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write_rows(const std::string& name, std::uint64_t seed, std::size_t n, std::size_t k) const {
    std::ofstream out(path(name));
    for (std::size_t i = 0; i < n; ++i) {
      counter_random random(seed, 0, i);
      out << i << '\t';
      for (std::size_t f = 0; f < k; ++f) out << (f > 0 ? "|" : "") << random.normal();
      out << '\n';
    }
  }

  /// Runs `run(comm)` on two workers; returns what the first one sent and the number of requests that the servers
  /// handled.
  template <class F>
  collective_log measured(F&& run) {
    collective_log said[2];
    cluster job({.workers = 2});
    job.run([&](Comm comm) { run(test::counted(comm, said[comm.get_rank()])); });
    EXPECT_LT(job.requests_served(), 20U);  // no parameters are on the servers
    return said[0];
  }

  fs::path folder_;
};

alg::dtr_settings tree_settings(const std::string& users, const std::string& items, const std::string& output,
                                int level) {
  const auto text = R"({"user_fac_input": ")" + users + R"(", "item_fac_input": ")" + items + R"(", "output": ")" +
                    output + R"(", "level": )" + std::to_string(level) + "}";
  return parse_settings<alg::dtr_settings>("config", text);
}

TEST_F(ReductionCost, ALevelOfATreeIsTwoReductionsOfTheSizeThatTheReadmeSays) {
  const std::size_t k = 3;
  const std::size_t items = 200;
  write_rows("users", 1, 400, k);
  write_rows("items", 2, items, k);
  std::vector<collective_log> at;
  for (const int level : {1, 2, 3}) {
    at.push_back(measured([&](Comm comm) {
      alg::decision_tree_rec(comm, "", tree_settings(path("users"), path("items"), path("out"), level)).solve();
    }));
  }
  for (std::size_t level = 1; level < at.size(); ++level) {
    const std::size_t nodes = std::size_t{1} << level;
    EXPECT_EQ(at[level].count(reduce) - at[level - 1].count(reduce), 2U);
    EXPECT_EQ(at[level].sent(reduce) - at[level - 1].sent(reduce), 8 * nodes * (k + 2) + 8 * items * nodes * (k + 1));
    EXPECT_EQ(at[level].size() - at[level - 1].size(), 2U);
  }
}

TEST_F(ReductionCost, TheSumsOfManyItemsGoInMessagesOfEightMegabytes) {
  const std::size_t k = 31;
  const std::size_t items = 70000;  // 32 numbers each: two messages and a bit
  write_rows("users", 1, 20, k);
  write_rows("items", 2, items, k);
  const auto found = measured([&](Comm comm) {
    alg::decision_tree_rec(comm, "", tree_settings(path("users"), path("items"), path("out"), 1)).solve();
  });
  EXPECT_LE(found.greatest(reduce), 8U << 20U);
  EXPECT_EQ(found.sent(reduce) / (8 * items * (k + 1)), 1U);
  EXPECT_GE(found.count(reduce), 3U + 1U);
  EXPECT_LE(found.count(reduce), 3U + 9U);  // also those of loading, whose rounds are bounded
}

TEST_F(ReductionCost, ARoundOfAnInversionIsThreeGathersAndThatOfItsQueue) {
  const std::size_t left = 60;
  const std::size_t right = 20;
  {
    std::ofstream edges(path("edges"));
    std::ofstream shares(path("shares"));
    for (std::size_t i = 0; i < left; ++i) {
      counter_random random(5, 0, i);
      for (std::size_t j = 0; j < right; ++j) {
        if (j == i % right || random.below(4) == 0)
          edges << i << "L," << j << "R," << random.uniform_above_zero() << '\n';
      }
      shares << i << "L," << 1.0 / left << '\n';
    }
    for (std::size_t j = 0; j < right; ++j) shares << j << "R," << 1.0 / right << '\n';
  }
  std::vector<collective_log> at;
  for (const int rounds : {2, 5}) {
    const auto text = R"({"bigraph_input": ")" + path("edges") + R"(", "distribution_input": ")" + path("shares") +
                      R"(", "output": ")" + path("out") + R"(", "feasibility": "never", "epsilon": 1e-9, "rounds": )" +
                      std::to_string(rounds) + "}";
    at.push_back(measured([&](Comm comm) {
      alg::steady_state_inversion(comm, "", parse_settings<alg::steady_settings>("config", text)).solve();
    }));
  }
  // The scheduler's collectives: a superstep's reductions gather the parts, which the workers fold themselves.
  EXPECT_EQ(at[1].size() - at[0].size(), 3U * 4U);
  EXPECT_EQ(at[1].count(gather) - at[0].count(gather), 3U * 4U);
  const auto gathered = at[1].received(gather) - at[0].received(gather);
  // Scores, sums and the four measured numbers of both workers; a few hundred bytes for types, and for the metrics and
  // the decision to go on that end a superstep, whatever the size of the graph.
  const auto values = 8 * (left + right) + 2 * 4 * 8;
  EXPECT_GE(gathered, 3 * values);
  EXPECT_LE(gathered, 3 * (values + 512));
}

}  // namespace
}  // namespace paracel
