// SPDX-License-Identifier: BSD-3-Clause
//
// The requests of lda to the servers per clock, and that word counts and similarities send none: as stated in their
// READMEs.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <paracel/random.hpp>

#include "alg/lda/lda.hpp"
#include "alg/similarity_dense/sim_dense.hpp"
#include "alg/similarity_sparse/sim_sparse.hpp"
#include "alg/word_count/wc.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "test/support/traffic.hpp"

namespace paracel::alg {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t words = 40;

class TextTraffic : public testing::Test {
 protected:
  TextTraffic() {
    std::string pattern = (fs::temp_directory_path() / "texts_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    counter_random random(1);
    std::ofstream text(folder_ / "text");
    std::ofstream rows(folder_ / "rows");
    for (int d = 0; d < 60; ++d) {
      // Every document has every word, so that every worker needs every row.
      for (std::int64_t w = 0; w < words; ++w) text << 'w' << w << (w + 1 < words ? ' ' : '\n');
      rows << d << ',' << random.below(20) << ',' << 1 + random.below(5) << '\n';
    }
  }
  ~TextTraffic() override { fs::remove_all(folder_); }

  using traffic = test::traffic;
  /// The shards' counters for a job with this config, summed over all servers.
  template <class Algorithm>
  traffic of(const char* input, const std::string& rest, std::size_t workers, std::size_t servers) {
    test::cluster c(
        {.workers = workers, .servers = servers, .threads = 1, .plugin_folders = {test::default_plugin_folder()}});
    const auto settings = parse_settings<typename Algorithm::settings_type>(
        "cfg.json", "{\"input\": \"" + (folder_ / input).string() + "\", \"output\": \"" + (folder_ / "out").string() +
                        "\"" + rest + "}");
    c.run([&](Comm comm) { Algorithm(comm, "", settings).solve(); });
    return test::traffic_of(c, servers);
  }

  fs::path folder_;
};

TEST_F(TextTraffic, AClockOfLdaIsAPullAndAnUpdateAShardAndOneEachForTheTotals) {
  constexpr std::int64_t topics = 12;
  constexpr std::int64_t clocks = 5;
  for (const std::size_t workers : {1UL, 2UL}) {
    for (const std::size_t servers : {1UL, 3UL}) {
      const auto run = [&](int sweeps) {
        return of<lda>("text", R"(, "k_topics": 12, "report_every": 0, "iters": )" + std::to_string(sweeps), workers,
                       servers);
      };
      auto few = run(2);
      auto many = run(2 + static_cast<int>(clocks));
      const auto more = [&](const char* verb) { return many.requests[verb] - few.requests[verb]; };
      const auto turns = clocks * static_cast<std::int64_t>(workers);
      const auto shards = static_cast<std::int64_t>(servers);
      EXPECT_EQ(more("rows_pull"), turns * (shards + 1));
      EXPECT_EQ(more("rows_update"), turns * (shards + 1));
      // Each word's row is sent to the worker, which sends its id, and the id with the deltas if there are any.
      const std::int64_t pulled = turns * (words * 4 * topics + 8 * topics);
      EXPECT_GE(many.bytes_out - few.bytes_out, pulled);
      EXPECT_LE(many.bytes_out - few.bytes_out, pulled + turns * (shards + 1) * 300);
      const std::int64_t sent = turns * (words * (16 + 4 * topics) + 8 + 8 * topics);
      EXPECT_LE(many.bytes_in - few.bytes_in, sent + turns * (shards + 1) * 300);
    }
  }
}

TEST_F(TextTraffic, WordCountsAndSimilaritiesAskNothingOfTheServers) {
  const auto none = [](traffic t) {
    for (const char* verb :
         {"pull", "push", "update", "rows_pull", "rows_update", "rows_push", "pull_multi", "push_multi"}) {
      EXPECT_EQ(t.requests[verb], 0) << verb;
    }
  };
  none(of<word_count>("text", "", 2, 2));
  none(of<sim_sparse>("rows", "", 2, 2));
  none(of<sim_dense>("rows", "", 2, 2));
}

}  // namespace
}  // namespace paracel::alg
