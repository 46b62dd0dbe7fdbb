// SPDX-License-Identifier: BSD-3-Clause
//
// The requests of mf, als and fm to the servers, as their READMEs state; the colours of fm's features.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <paracel/random.hpp>

#include "alg/als/als.hpp"
#include "alg/factorization_machine/feature_colours.hpp"
#include "alg/factorization_machine/fm.hpp"
#include "alg/matrix_factorization/mf.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "test/support/traffic.hpp"

namespace paracel::alg {
namespace {

namespace fs = std::filesystem;

constexpr int users = 12;
constexpr int items = 9;

/// Every user rates every item, so that every worker needs every row of the other side.
class FactorTraffic : public testing::Test {
 protected:
  FactorTraffic() {
    std::string pattern = (fs::temp_directory_path() / "factors_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream file(folder_ / "ratings.csv");
    counter_random random(1);
    for (int u = 0; u < users; ++u) {
      for (int i = 0; i < items; ++i) file << u << ',' << i << ',' << 1 + random.below(5) << '\n';
    }
  }
  ~FactorTraffic() override { fs::remove_all(folder_); }

  using traffic = test::traffic;
  /// The shards' counters for a job with these keys, summed over all servers.
  template <class Algorithm>
  traffic of(const std::string& input_key, const std::string& rest, std::size_t workers, std::size_t servers) {
    test::cluster c(
        {.workers = workers, .servers = servers, .threads = 1, .plugin_folders = {test::default_plugin_folder()}});
    const auto text = "{\"" + input_key + "\": \"" + (folder_ / "ratings.csv").string() + "\", \"output\": \"" +
                      (folder_ / "out").string() + "\", " + rest + "}";
    const auto settings = parse_settings<typename Algorithm::settings_type>("cfg.json", text);
    c.run([&](Comm comm) { Algorithm(comm, "", settings).solve(); });
    return test::traffic_of(c, servers);
  }
  static std::string shown(const traffic& t) {
    std::string s = "in " + std::to_string(t.bytes_in) + " out " + std::to_string(t.bytes_out);
    for (const auto& [verb, n] : t.requests) s += " " + verb + " " + std::to_string(n);
    return s;
  }

  fs::path folder_;
};

TEST_F(FactorTraffic, AClockOfMfIsAPullAndAnUpdateAShardAndTheRowsOfItsItemsTwice) {
  const int clocks = 1;
  const int k = 6;
  for (const std::size_t workers : {1UL, 2UL}) {
    for (const std::size_t servers : {1UL, 3UL}) {
      const std::int64_t bytes = servers == 1 ? 4 : 8;  // of a factor
      const auto run = [&](int rounds) {
        return of<matrix_factorization>("input",
                                        R"("clocks_per_round": 1, "k": )" + std::to_string(k) + R"(, "rounds": )" +
                                            std::to_string(rounds) + R"(, "factors": "float)" +
                                            std::to_string(8 * bytes) + "\"",
                                        workers, servers);
      };
      auto few = run(2);
      auto many = run(7);
      const auto rounds = 5 * clocks * static_cast<std::int64_t>(workers);
      const auto shards = static_cast<std::int64_t>(servers);
      const auto more = [&](const char* verb) { return many.requests[verb] - few.requests[verb]; };
      EXPECT_EQ(more("rows_pull"), rounds * shards) << shown(few) << "\n" << shown(many);
      EXPECT_EQ(more("rows_update"), rounds * shards);
      // The loss of the round: an update from each worker; rank 0 reads and removes the sum.
      EXPECT_LE(more("update") + more("pull") + more("remove"), 5 * (static_cast<std::int64_t>(workers) + 2));
      // Rows of k + 2 numbers with 8 bytes of id: ids and deltas are received, rows sent; the remainder are message
      // headers.
      const std::int64_t rows = rounds * items;
      const std::int64_t row = bytes * (k + 2);
      EXPECT_GE(many.bytes_out - few.bytes_out, rows * row);
      EXPECT_LE(many.bytes_out - few.bytes_out, rows * row + rounds * (shards * 300 + 600));
      EXPECT_GE(many.bytes_in - few.bytes_in, rows * (row + 16));
      EXPECT_LE(many.bytes_in - few.bytes_in, rows * (row + 16) + rounds * (shards * 300 + 600));
    }
  }
}

TEST_F(FactorTraffic, ABatchOfFmIsAPullAndAnUpdateAShardAndTheRowsOfItsFeaturesTwice) {
  // There are 100,000 features; each sample has 3 of the first 40.
  {
    std::ofstream file(folder_ / "ratings.csv");
    counter_random random(2);
    for (int i = 0; i < 64; ++i) {
      const auto j = 1 + random.below(12);
      file << i % 5 << ' ' << j << ":1 " << j + 13 << ":2 " << j + 27 << ":1\n";
    }
    file << "1 1:1 100000:1\n";
  }
  const int k = 6;
  for (const std::string method : {"sgd", "adagrad"}) {
    for (const std::size_t workers : {1UL, 2UL}) {
      for (const std::size_t servers : {1UL, 3UL}) {
        const auto run = [&](int rounds) {
          return of<factorization_machine>("training_input",
                                           R"("batch_size": 65, "method": ")" + method + R"(", "k": )" +
                                               std::to_string(k) + R"(, "rounds": )" + std::to_string(rounds),
                                           workers, servers);
        };
        auto few = run(2);
        auto many = run(7);
        const auto batches = 5 * static_cast<std::int64_t>(workers);
        const auto shards = static_cast<std::int64_t>(servers);
        const auto more = [&](const char* verb) { return many.requests[verb] - few.requests[verb]; };
        EXPECT_EQ(more("rows_pull"), batches * shards) << shown(few) << "\n" << shown(many);
        EXPECT_EQ(more("rows_update"), batches * shards);
        EXPECT_EQ(more("rows_push") + more("update") + more("pull"), 0);
        // At most 38 rows of k + 1 numbers with 8 bytes of id; the remainder are message headers.
        const std::int64_t row = 8 * (k + 1);
        EXPECT_GE(many.bytes_out - few.bytes_out, batches * 30 * row);
        EXPECT_LE(many.bytes_out - few.bytes_out, batches * (38 * row + shards * 300 + 600));
        EXPECT_GE(many.bytes_in - few.bytes_in, batches * 30 * (row + 16));
        EXPECT_LE(many.bytes_in - few.bytes_in, batches * (38 * (row + 16) + shards * 300 + 600));
      }
    }
  }
}

TEST_F(FactorTraffic, RoundsOfFmByAlsDoNotUseTheServers) {
  const auto run = [&](int rounds) {
    return of<factorization_machine>(
        "training_input", R"("method": "als", "k": 3, "beta_v": 1, "rounds": )" + std::to_string(rounds), 2, 2);
  };
  auto few = run(2);
  auto many = run(7);
  for (const char* verb : {"rows_pull", "rows_push", "rows_update", "update", "push", "pull"})
    EXPECT_EQ(many.requests[verb], few.requests[verb]) << verb;
  EXPECT_GT(few.requests["rows_push"], 0);  // of the model, at the end
}

using feature_rows = std::vector<std::vector<std::uint32_t>>;

/// The colours that workers with contiguous parts of the rows find; they must agree.
std::vector<std::uint32_t> colours_of(const feature_rows& all, std::uint32_t columns, std::size_t workers) {
  test::cluster c({.workers = workers, .servers = 1});
  std::vector<std::vector<std::uint32_t>> found(workers);
  c.run([&](Comm comm) {
    const auto rank = static_cast<std::size_t>(comm.get_rank());
    const auto own = owned_range_of(all.size(), workers, rank);
    sample_rows rows;
    rows.columns = columns;
    for (auto i = own.begin; i < own.end; ++i) {
      rows.column.insert(rows.column.end(), all[i].begin(), all[i].end());
      rows.row_begin.push_back(rows.column.size());
    }
    rows.value.assign(rows.column.size(), 1.0);
    rows.row_count = own.size();
    collectives among(comm);
    found[rank] = colour_features(among, rows);
  });
  for (const auto& f : found) EXPECT_EQ(f, found[0]);
  return found[0];
}

TEST(FeatureColours, AreThoseOfTheSerialGreedyAlgorithmForAnyNumberOfWorkers) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    counter_random random(seed);
    constexpr std::uint32_t columns = 70;
    feature_rows rows;
    for (int i = 0; i < 40; ++i) {
      std::set<std::uint32_t> row;
      for (auto n = random.below(6); n > 0; --n) row.insert(static_cast<std::uint32_t>(random.below(columns)));
      rows.emplace_back(row.begin(), row.end());
    }
    std::vector<std::set<std::uint32_t>> taken(columns);
    std::vector<std::uint32_t> expected(columns, no_colour);
    for (std::uint32_t j = 0; j < columns; ++j) {
      bool known = false;
      for (const auto& row : rows) known = known || std::ranges::find(row, j) != row.end();
      if (!known) continue;
      expected[j] = 0;
      while (taken[j].contains(expected[j])) ++expected[j];
      for (const auto& row : rows) {
        if (std::ranges::find(row, j) == row.end()) continue;
        for (const auto l : row) taken[l].insert(expected[j]);
      }
    }
    for (const std::size_t workers : {1UL, 2UL, 3UL, 5UL})
      EXPECT_EQ(colours_of(rows, columns, workers), expected) << workers << " workers, seed " << seed;
  }
}

TEST(FeatureColours, ALongChainNeedsFewColoursAndTheSameForAnyNumberOfWorkers) {
  constexpr std::uint32_t columns = 2000;
  feature_rows rows;
  for (std::uint32_t j = 0; j + 1 < columns; ++j) rows.push_back({j, j + 1});
  const auto colour = colours_of(rows, columns, 1);
  for (std::uint32_t j = 0; j + 1 < columns; ++j) EXPECT_NE(colour[j], colour[j + 1]) << j;
  EXPECT_LE(*std::ranges::max_element(colour), 2U);
  EXPECT_EQ(colours_of(rows, columns, 3), colour);
}

TEST_F(FactorTraffic, ARoundOfAlsIsTwoPullsAndTwoPushesAShard) {
  const int k = 6;
  for (const std::size_t workers : {1UL, 2UL}) {
    for (const std::size_t servers : {1UL, 3UL}) {
      const auto run = [&](int rounds) {
        return of<alternating_least_squares>(
            "rating_input", R"("k": )" + std::to_string(k) + R"(, "rounds": )" + std::to_string(rounds), workers,
            servers);
      };
      auto few = run(2);
      auto many = run(7);
      const auto shards = static_cast<std::int64_t>(servers);
      const auto size = static_cast<std::int64_t>(workers);
      const auto more = [&](const char* verb) { return many.requests[verb] - few.requests[verb]; };
      EXPECT_EQ(more("rows_pull"), 5 * 2 * size * shards) << shown(few) << "\n" << shown(many);
      // A shard without rows of a worker receives no push from it.
      EXPECT_LE(more("rows_push"), 5 * 2 * size * shards);
      EXPECT_GE(more("rows_push"), 5 * 2);
      // Every worker pulls every row of the other side; every row is pushed once.
      const std::int64_t row = 8 * (k + 2);
      const std::int64_t pulled = 5 * size * (users + items);
      const std::int64_t pushed = 5 * (users + items);
      EXPECT_GE(many.bytes_out - few.bytes_out, pulled * row);
      EXPECT_LE(many.bytes_out - few.bytes_out, pulled * row + 5 * 4 * size * shards * 300);
      EXPECT_GE(many.bytes_in - few.bytes_in, pushed * (row + 8) + pulled * 8);
      EXPECT_LE(many.bytes_in - few.bytes_in, pushed * (row + 8) + pulled * 8 + 5 * 4 * size * shards * 300);
    }
  }
}

}  // namespace
}  // namespace paracel::alg
