// SPDX-License-Identifier: BSD-3-Clause
//
// What word2vec sends: the rows of a batch's words and negatives, and nothing in proportion to the vocabulary; and its
// vocabulary, which does not depend on the number of workers.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <paracel/random.hpp>

#include "alg/word2vec/word2vec.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "test/support/traffic.hpp"

namespace paracel::alg {
namespace {

namespace fs = std::filesystem;

class Word2vecTraffic : public testing::Test {
 protected:
  Word2vecTraffic() {
    std::string pattern = (fs::temp_directory_path() / "word2vec_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    text_ = (folder_ / "text.txt").string();
    // 3,000 words; those of a line are neighbours among them, so a batch has few of all words.
    std::ofstream file(text_);
    counter_random random(1);
    for (int line = 0; line < 1200; ++line) {
      for (int i = 0; i < 10; ++i) file << 'w' << line / 2 * 5 + static_cast<int>(random.below(5)) << ' ';
      file << "the\n";
    }
  }
  ~Word2vecTraffic() override { fs::remove_all(folder_); }

  static test::cluster started(std::size_t workers, std::size_t servers) {
    return test::cluster(
        {.workers = workers, .servers = servers, .threads = 1, .plugin_folders = {test::default_plugin_folder()}});
  }

  fs::path folder_;
  std::string text_;
};

TEST_F(Word2vecTraffic, ABatchIsTwoPullsAndTwoUpdatesAShardAndItsRowsTwice) {
  const int k = 6;
  for (const std::string loss : {"negative_sampling", "hierarchical_softmax"}) {
    for (const std::size_t workers : {1UL, 2UL}) {
      for (const std::size_t servers : {1UL, 3UL}) {
        const auto keys = [&](int rounds) {
          return R"({"input": ")" + text_ + R"(", "output": ")" + (folder_ / "out").string() + R"(", "loss": ")" +
                 loss + R"(", "min_count": 1, "batch_size": 1100, "k": )" + std::to_string(k) + R"(, "rounds": )" +
                 std::to_string(rounds) + (loss == "negative_sampling" ? R"(, "noise_words": 20})" : "}");
        };
        const auto settings = parse_settings<word2vec_settings>("cfg.json", keys(7));
        std::map<std::string, std::int64_t> more;
        std::atomic<std::int64_t> words = 0;
        std::atomic<std::int64_t> rows = 0;  // of the five rounds
        std::atomic<std::int64_t> most = 0;  // rows of a batch
        for (const int rounds : {2, 7}) {
          auto c = started(workers, servers);
          const auto these = parse_settings<word2vec_settings>("cfg.json", keys(rounds));
          c.run([&](Comm comm) { word2vec(comm, "", these).solve(); });
          const auto t = test::traffic_of(c, servers);
          const int sign = rounds == 7 ? 1 : -1;
          for (const auto& [verb, n] : t.requests) more[verb] += sign * n;
          more["bytes_in"] += sign * t.bytes_in;
          more["bytes_out"] += sign * t.bytes_out;
        }
        auto c = started(workers, 1);
        c.run([&](Comm comm) {
          paralg job("", comm, (folder_ / "other").string(), 1);
          vocabulary vocabulary;
          const auto text = load_tokens(comm, {text_}, word_bytes::space(), 1, vocabulary);
          words = static_cast<std::int64_t>(vocabulary.size());
          const batch_plan plan{12, workers == 1 ? 1U : 8U};
          word2vec_batcher batcher(text, vocabulary, settings.model, comm.get_rank(), workers, plan);
          word2vec_batch batch;
          for (auto number = plan.before(2); number < plan.before(7); ++number) {
            batcher.cut(number, batch);
            const auto count = static_cast<std::int64_t>(batch.input.size() + batch.output.size());
            rows += count;
            if (count > most) most = count;
          }
        });
        const auto batches = 5 * 12 * static_cast<std::int64_t>(workers);
        const auto shards = static_cast<std::int64_t>(servers);
        // A shard without rows of a batch gets no request.
        EXPECT_LE(more["rows_pull"], 2 * batches * shards);
        EXPECT_LE(more["rows_update"], 2 * batches * shards);
        if (servers == 1) {
          EXPECT_EQ(more["rows_pull"], 2 * batches);
          EXPECT_EQ(more["rows_update"], 2 * batches);
        }
        EXPECT_EQ(more["rows_push"] + more["update"] + more["pull"], 0);
        // k floats, and in a pull and an update at most 8 bytes of id each: lists of ids that recur are not sent again.
        // The rest are message headers.
        const std::int64_t row = 4 * k;
        EXPECT_GE(more["bytes_out"], rows * row);
        EXPECT_LE(more["bytes_out"], rows * row + batches * (shards * 600 + 600));
        EXPECT_GE(more["bytes_in"], rows * row);
        EXPECT_LE(more["bytes_in"], rows * (row + 16) + batches * (shards * 600 + 600));
        // A fraction of all rows.
        EXPECT_GT(words, 2900);
        EXPECT_LT(2 * most, words);
      }
    }
  }
}

TEST_F(Word2vecTraffic, TheVocabularyAndTheTextAreTheSameForAnyNumberOfWorkers) {
  std::ofstream(text_, std::ios::app) << "\n  \nrare the w1\r\ntie_b tie_a tie_b tie_a no_line_end tie_c";
  vocabulary expected;
  std::vector<std::string> expected_words;
  for (const std::size_t workers : {1UL, 2UL, 4UL}) {
    std::mutex mutex;
    std::vector<std::vector<std::string>> sentences(workers);  // by worker, in order
    std::vector<vocabulary> found(workers);
    auto c = started(workers, 1);
    c.run([&](Comm comm) {
      paralg job("", comm, (folder_ / "other").string(), 1);
      vocabulary words;
      const auto text = load_tokens(comm, {text_}, word_bytes::space(), 2, words);
      const std::lock_guard lock(mutex);
      for (std::size_t s = 0; s < text.sentences(); ++s) {
        std::string line;
        for (auto t = text.begin[s]; t < text.begin[s + 1]; ++t) line += words.word.at(text.token[t]) + ' ';
        sentences[comm.get_rank()].push_back(line);
      }
      found[comm.get_rank()] = words;
    });
    std::vector<std::string> all;
    for (const auto& part : sentences) all.insert(all.end(), part.begin(), part.end());
    if (workers == 1) {
      expected = found[0];
      expected_words = all;
      EXPECT_EQ(expected.word[0], "the");
      EXPECT_EQ(expected.count[0], 1201U);
      EXPECT_EQ(std::count(expected.word.begin(), expected.word.end(), "rare"), 0);
      const auto at = std::find(expected.word.begin(), expected.word.end(), "tie_a");
      ASSERT_LT(at + 1, expected.word.end());
      EXPECT_EQ(*(at + 1), "tie_b");
      EXPECT_EQ(all.back(), "tie_b tie_a tie_b tie_a ");
    }
    for (const auto& words : found) {
      EXPECT_EQ(words.word, expected.word);
      EXPECT_EQ(words.count, expected.count);
      EXPECT_EQ(words.total, expected.total);
    }
    EXPECT_EQ(all, expected_words);
  }
}

TEST_F(Word2vecTraffic, LinesLongerThanASentenceAreSeveralAndATextWithoutFrequentWordsIsRefused) {
  std::ofstream file(text_);
  for (int i = 0; i < 2500; ++i) file << (i % 2 == 0 ? "a " : "b ");
  file << "\n";
  file.close();
  auto c = started(1, 1);
  c.run([&](Comm comm) {
    paralg job("", comm, (folder_ / "other").string(), 1);
    vocabulary words;
    const auto text = load_tokens(comm, {text_}, word_bytes::space(), 1, words);
    EXPECT_EQ(text.begin, (std::vector<std::uint64_t>{0, 1000, 2000, 2500}));
    try {
      (void)load_tokens(comm, {text_}, word_bytes::space(), 1251, words);
      ADD_FAILURE() << "accepted";
    } catch (const data_error& e) {
      EXPECT_NE(std::string(e.what()).find("found no word that occurs at least 1251 times"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace paracel::alg
