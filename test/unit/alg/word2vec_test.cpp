// SPDX-License-Identifier: BSD-3-Clause
//
// Parts of word2vec: the step, what is drawn, the Huffman tree, batches, files of vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "alg/word2vec/vocabulary.hpp"
#include "alg/word2vec/word2vec_batch.hpp"
#include "alg/word2vec/word2vec_kernel.hpp"
#include "alg/word2vec/word_vectors.hpp"

namespace paracel::alg {
namespace {

vocabulary words_with_counts(std::vector<std::uint64_t> counts) {
  vocabulary words;
  for (std::size_t w = 0; w < counts.size(); ++w) words.word.push_back("w" + std::to_string(w));
  words.total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  words.count = std::move(counts);
  return words;
}

/// Sentences of words by Zipf's law, and their vocabulary.
std::pair<token_text, vocabulary> zipf_text(std::size_t words, std::size_t sentences, std::uint64_t seed) {
  token_text text;
  std::vector<std::uint64_t> counts(words, 1);
  counter_random random(seed);
  for (std::size_t s = 0; s < sentences; ++s) {
    const auto length = 1 + random.below(20);
    for (std::uint64_t i = 0; i < length; ++i) {
      const auto w = static_cast<std::uint32_t>(static_cast<double>(words) * std::pow(random.uniform(), 3));
      text.token.push_back(w);
      ++counts[w];
    }
    text.begin.push_back(text.token.size());
  }
  std::sort(counts.rbegin(), counts.rend());
  return {text, words_with_counts(counts)};
}

// ---- the step

double loss_of(const std::vector<std::vector<double>>& x, const std::vector<std::vector<double>>& y,
               const std::vector<float>& labels) {
  double loss = 0;
  for (const auto& a : x) {
    for (std::size_t k = 0; k < y.size(); ++k) {
      const double f = std::inner_product(a.begin(), a.end(), y[k].begin(), 0.0);
      loss += std::log1p(std::exp(labels[k] > 0 ? -f : f));
    }
  }
  return loss;
}

TEST(Word2vecKernel, AStepIsTheGradientOfItsLossByDifferences) {
  counter_random random(7);
  for (const std::size_t width : {1U, 8U, 20U, 100U}) {
    for (const std::size_t inputs : {1U, 2U, 5U, 10U}) {
      for (const std::size_t outputs : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 13U, 20U}) {
        std::vector<float> rows((inputs + outputs) * width);
        for (auto& v : rows) v = static_cast<float>(random.normal() / std::sqrt(static_cast<double>(width)));
        std::vector<float> labels(outputs);
        for (auto& l : labels) l = static_cast<float>(random.below(2));
        padded_rows local(width);
        local.set(rows);
        std::vector<float*> x;
        std::vector<float*> y;
        std::vector<std::vector<double>> first;
        std::vector<std::vector<double>> second;
        for (std::size_t i = 0; i < inputs + outputs; ++i) {
          (i < inputs ? x : y).push_back(local.row(i));
          (i < inputs ? first : second).emplace_back(local.row(i), local.row(i) + width);
        }
        word2vec_kernel kernel(local.stride());
        const double loss = kernel.step(x, y, labels, 1, true);
        EXPECT_NEAR(loss, loss_of(first, second, labels), 1e-5 * loss);
        auto moved = rows;
        local.take_differences(moved, [](std::size_t) { return 1.0F; });
        for (std::size_t i = 0; i < inputs + outputs; ++i) {
          auto& row = i < inputs ? first[i] : second[i - inputs];
          for (std::size_t j = 0; j < width; ++j) {
            const double at = std::exchange(row[j], row[j] + 1e-5);
            const double above = loss_of(first, second, labels);
            row[j] = at - 1e-5;
            const double below = loss_of(first, second, labels);
            row[j] = at;
            ASSERT_NEAR(moved[i * width + j], -(above - below) / 2e-5, 2e-5)
                << width << " " << inputs << " " << outputs << " row " << i << " number " << j;
          }
        }
      }
    }
  }
}

TEST(Word2vecKernel, ARepeatedRowGetsTheSumOfItsMoves) {
  constexpr std::size_t width = 12;
  counter_random random(3);
  std::vector<float> rows(4 * width);
  for (auto& v : rows) v = static_cast<float>(random.normal() / 3);
  const std::vector<float> labels{1, 0, 0, 1, 0, 0, 1, 0};
  // Rows 0 and 1 are inputs, 2 and 3 outputs; the step with repetitions, and the same one with copies.
  padded_rows shared(width);
  shared.set(rows);
  std::vector<float*> x{shared.row(0), shared.row(1), shared.row(0)};
  std::vector<float*> y;
  for (std::size_t k = 0; k < labels.size(); ++k) y.push_back(shared.row(2 + k % 2));
  std::vector<float> copies;
  for (const std::size_t i : {0U, 1U, 0U})
    copies.insert(copies.end(), rows.begin() + static_cast<long>(i * width),
                  rows.begin() + static_cast<long>((i + 1) * width));
  for (std::size_t k = 0; k < labels.size(); ++k)
    copies.insert(copies.end(), rows.begin() + static_cast<long>((2 + k % 2) * width),
                  rows.begin() + static_cast<long>((3 + k % 2) * width));
  padded_rows apart(width);
  apart.set(copies);
  std::vector<float*> other_x{apart.row(0), apart.row(1), apart.row(2)};
  std::vector<float*> other_y;
  for (std::size_t k = 0; k < labels.size(); ++k) other_y.push_back(apart.row(3 + k));
  word2vec_kernel kernel(shared.stride());
  (void)kernel.step(x, y, labels, 0.5F, false);
  (void)kernel.step(other_x, other_y, labels, 0.5F, false);
  apart.take_differences(copies, [](std::size_t) { return 1.0F; });
  std::vector<float> sums(4 * width);
  const std::vector<std::size_t> of{0, 1, 0, 2, 3, 2, 3, 2, 3, 2, 3};
  for (std::size_t i = 0; i < of.size(); ++i) {
    for (std::size_t j = 0; j < width; ++j) sums[of[i] * width + j] += copies[i * width + j];
  }
  shared.take_differences(rows, [](std::size_t) { return 1.0F; });
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], sums[i], 1e-5);
}

TEST(Word2vecKernel, LargeProductsMoveNothingOrAWholeStep) {
  padded_rows local(8);
  std::vector<float> rows(16, 0.0F);
  for (const float size : {30.0F, 1e6F}) {
    rows[0] = size;
    rows[8] = size;
    local.set(rows);
    word2vec_kernel kernel(8);
    std::vector<float*> x{local.row(0)};
    std::vector<float*> y{local.row(1)};
    (void)kernel.step(x, y, std::vector<float>{1}, 0.5F, false);
    EXPECT_EQ(local.row(0)[0], size);
    (void)kernel.step(x, y, std::vector<float>{0}, 0.5F, false);
    EXPECT_FLOAT_EQ(local.row(0)[0], size / 2);
  }
}

// ---- what is drawn

TEST(Word2vecVocabulary, NegativesFollowThePowerOfTheCounts) {
  const auto words = words_with_counts({1000, 200, 200, 16, 1});
  const noise_distribution noise(words);
  double sum = 0;
  for (const auto n : words.count) sum += std::pow(static_cast<double>(n), 0.75);
  counter_random random(5);
  std::vector<double> found(words.size());
  constexpr int draws = 400000;
  for (int i = 0; i < draws; ++i) found[noise(random)] += 1.0 / draws;
  double all = 0;
  for (std::uint32_t w = 0; w < words.size(); ++w) {
    const double p = std::pow(static_cast<double>(words.count[w]), 0.75) / sum;
    EXPECT_NEAR(noise.probability(w), p, 1e-12);
    EXPECT_NEAR(found[w], p, 5 * std::sqrt(p / draws));
    all += noise.probability(w);
  }
  EXPECT_NEAR(all, 1, 1e-12);
}

TEST(Word2vecVocabulary, FrequentWordsAreThinnedOut) {
  const auto words = words_with_counts({90000, 9000, 900, 90, 10});
  const auto keep = keep_probabilities(words, 1e-2);
  const double f = 90000.0 / 100000;
  EXPECT_NEAR(keep[0], std::sqrt(1e-2 / f) + 1e-2 / f, 1e-6);
  EXPECT_LT(keep[0], keep[1]);
  EXPECT_EQ(keep[2], 1);
  EXPECT_EQ(keep_probabilities(words, 0), std::vector<float>(5, 1.0F));
}

TEST(Word2vecVocabulary, TheHuffmanTreeIsPrefixFreeAndNoTreeIsShorter) {
  counter_random random(11);
  for (const std::size_t n : {1U, 2U, 3U, 7U, 100U, 1000U}) {
    std::vector<std::uint64_t> counts(n);
    for (auto& c : counts) c = 1 + random.below(1U << random.below(20));
    std::sort(counts.rbegin(), counts.rend());
    const huffman_tree tree(counts);
    ASSERT_EQ(tree.begin.size(), n + 1);
    std::uint64_t cost = 0;
    std::map<std::string, std::uint32_t> node_at;  // path from the root: the node there
    std::set<std::string> codes;
    for (std::size_t w = 0; w < n; ++w) {
      std::string code;
      for (auto p = tree.begin[w]; p < tree.begin[w + 1]; ++p) {
        ASSERT_LT(tree.node[p], n - 1);
        EXPECT_EQ(node_at.emplace(code, tree.node[p]).first->second, tree.node[p]);
        code += tree.label[p] == 1 ? '1' : '0';
      }
      codes.insert(code);
      cost += counts[w] * code.size();
    }
    EXPECT_EQ(codes.size(), n);
    for (const auto& code : codes) EXPECT_EQ(node_at.count(code), 0U);
    if (n > 1) {
      EXPECT_EQ(node_at.at(""), 0U);
    }
    EXPECT_EQ(node_at.size(), n - 1);
    // The optimum is the sum of all inner nodes.
    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> least(counts.begin(), counts.end());
    std::uint64_t optimum = 0;
    while (least.size() > 1) {
      const auto a = least.top();
      least.pop();
      const auto sum = a + least.top();
      least.pop();
      optimum += sum;
      least.push(sum);
    }
    EXPECT_EQ(cost, optimum);
  }
}

// ---- batches

TEST(Word2vecBatch, PartsAreAllSentencesOnceAndOfAboutOneSize) {
  const auto [text, words] = zipf_text(50, 200, 1);
  for (const std::uint64_t parts : {1U, 2U, 7U, 500U}) {
    std::size_t next = 0;
    for (std::uint64_t p = 0; p < parts; ++p) {
      const auto [first, last] = text.part(p, parts);
      EXPECT_EQ(first, next);
      EXPECT_LE(first, last);
      next = last;
      const auto tokens = static_cast<double>(text.begin[last] - text.begin[first]);
      EXPECT_NEAR(tokens, static_cast<double>(text.token.size()) / static_cast<double>(parts), 20);
    }
    EXPECT_EQ(next, text.sentences());
  }
  EXPECT_EQ(token_text().part(2, 3), (std::pair<std::size_t, std::size_t>{0, 0}));
}

TEST(Word2vecBatch, HasTheRowsOfItsWordsAndNegativesOnceInOrder) {
  const auto [text, words] = zipf_text(60, 300, 2);
  for (const bool hierarchical : {false, true}) {
    word2vec_model model;
    model.hierarchical = hierarchical;
    model.noise_words = 9;
    model.sample = 0.01;
    const huffman_tree tree(words.count);
    word2vec_batcher batcher(text, words, model, 0, 1, {12});
    word2vec_batch batch;
    for (std::uint64_t number = 0; number < 24; ++number) {
      batcher.cut(number, batch);
      std::set<std::uint64_t> input;
      std::set<std::uint64_t> output;
      for (const auto slot : batch.token) input.insert(batch.input.at(slot));
      for (const auto slot : batch.noise) output.insert(batch.output.at(slot));
      EXPECT_EQ(batch.noise.size(), hierarchical ? 0U : 9U);
      for (const auto id : input) {
        if (!hierarchical) output.insert(id);
        for (auto p = tree.begin[id]; hierarchical && p < tree.begin[id + 1]; ++p) output.insert(tree.node[p]);
      }
      EXPECT_EQ(batch.input, std::vector<std::uint64_t>(input.begin(), input.end()));
      EXPECT_EQ(batch.output, std::vector<std::uint64_t>(output.begin(), output.end()));
      ASSERT_EQ(batch.begin.size(), input.size() + 1);
      for (std::size_t s = 0; s < batch.input.size(); ++s) {
        const auto w = batch.input[s];
        for (auto p = batch.begin[s]; p < batch.begin[s + 1]; ++p) {
          const auto place = tree.begin[w] + (p - batch.begin[s]);
          EXPECT_EQ(batch.output[batch.target[p]], hierarchical ? tree.node[place] : w);
          EXPECT_EQ(batch.label[p], hierarchical ? tree.label[place] : 1);
        }
      }
      ASSERT_FALSE(batch.end.empty());
      EXPECT_EQ(batch.end.back(), batch.token.size());
    }
    // Cut again, it is the same; another worker draws a different one.
    word2vec_batch again;
    batcher.cut(23, again);
    EXPECT_EQ(again.token, batch.token);
    EXPECT_EQ(again.noise, batch.noise);
    word2vec_batcher(text, words, model, 1, 2, {12}).cut(23, again);
    EXPECT_NE(again.token, batch.token);
  }
}

TEST(Word2vecBatch, TheNegativesOfABatchAreFromAsManyDrawsAsItHasWords) {
  const auto [text, words] = zipf_text(60, 300, 2);
  word2vec_model model;
  model.sample = 0.01;
  word2vec_batcher batcher(text, words, model, 0, 1, {12});
  word2vec_batch batch;
  batcher.cut(3, batch);
  EXPECT_GT(batch.token.size(), 100U);
  EXPECT_EQ(batch.noise.size(), batch.token.size());
}

TEST(Word2vecBatch, AFirstRoundOfMoreBatchesHasAllOfTheText) {
  const auto [text, words] = zipf_text(60, 300, 2);
  word2vec_model model;
  model.sample = 0;
  const batch_plan plan{3, 4};
  EXPECT_EQ(plan.before(1), 12U);
  EXPECT_EQ(plan.before(3), 18U);
  word2vec_batcher batcher(text, words, model, 0, 1, plan);
  word2vec_batch batch;
  std::size_t all = 0;  // that are in a sentence of more than one word
  for (std::size_t s = 0; s < text.sentences(); ++s) {
    const auto n = text.begin[s + 1] - text.begin[s];
    all += n > 1 ? n : 0;
  }
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::size_t tokens = 0;
    for (auto number = plan.before(round); number < plan.before(round + 1); ++number) {
      EXPECT_EQ(plan.round_of(number), round);
      const auto part = static_cast<double>(number - plan.before(round)) / static_cast<double>(plan.of_round(round));
      EXPECT_DOUBLE_EQ(plan.rounds_before(number), static_cast<double>(round) + part);
      batcher.cut(number, batch);
      tokens += batch.token.size();
    }
    EXPECT_EQ(tokens, all);
  }
}

TEST(Word2vecBatch, SharesAreOneOfOneWorkerAndForRareWordsAndAMeanForFrequentOnes) {
  const auto [text, words] = zipf_text(60, 300, 2);
  for (const bool hierarchical : {false, true}) {
    word2vec_model model;
    model.hierarchical = hierarchical;
    word2vec_batcher one(text, words, model, 0, 1, {1});
    word2vec_batcher four(text, words, model, 0, 4, {1});
    ASSERT_EQ(one.outputs(), hierarchical ? words.size() - 1 : words.size());
    for (std::uint64_t id = 0; id < words.size(); ++id) {
      EXPECT_EQ(one.input_share(id, 0.1), 1);
      EXPECT_NEAR(four.input_share(id, 1e-9), 1, 1e-4);
      EXPECT_NEAR(four.input_share(id, 1e3), 0.25, 1e-6);
      if (id > 0 && !hierarchical) {
        EXPECT_LE(four.input_share(id - 1, 0.01), four.input_share(id, 0.01) * (1 + 1e-6F));
      }
    }
    for (std::uint64_t id = 0; id < one.outputs(); ++id) {
      EXPECT_EQ(one.output_share(id, 0.1), 1);
      EXPECT_NEAR(four.output_share(id, 1e-9), 1, 1e-4);
      EXPECT_NEAR(four.output_share(id, 1e3), 0.25, 1e-6);
    }
  }
}

TEST(Word2vecBatch, TrainingLowersTheLossOfEveryKind) {
  // A sentence has ten words of one of four groups.
  const auto words = words_with_counts(std::vector<std::uint64_t>(40, 100));
  token_text text;
  counter_random draws(4);
  for (std::uint32_t s = 0; s < 400; ++s) {
    for (int i = 0; i < 10; ++i) text.token.push_back(s % 4 * 10 + static_cast<std::uint32_t>(draws.below(10)));
    text.begin.push_back(text.token.size());
  }
  for (const bool cbow : {false, true}) {
    for (const bool hierarchical : {false, true}) {
      word2vec_model model;
      model.cbow = cbow;
      model.hierarchical = hierarchical;
      model.k = 12;
      model.sample = 0;
      word2vec_batcher batcher(text, words, model, 0, 1, {1});
      word2vec_batch batch;
      padded_rows input(model.k);
      padded_rows output(model.k);
      std::vector<float> rows(words.size() * model.k);
      counter_random random(9);
      for (auto& v : rows) v = static_cast<float>(random.uniform() - 0.5) / 12;
      word2vec_kernel kernel(input.stride());
      word2vec_loss first;
      word2vec_loss last;
      for (std::uint64_t round = 0; round < 30; ++round) {
        batcher.cut(round, batch);
        if (round == 0) {
          ASSERT_EQ(batch.input.size(), words.size());
          input.set(rows);
          output.set(std::vector<float>(batch.output.size() * model.k));
        }
        last = {};
        if (round == 0) train_batch(model, batch, input, output, 0, 0, kernel, first);
        train_batch(model, batch, input, output, 0.05, 0.05, kernel, last);
      }
      EXPECT_GT(last.predictions, 0);
      EXPECT_LT(last.sum / last.predictions, 0.9 * first.sum / first.predictions) << cbow << hierarchical;
    }
  }
}

// ---- files

word_vectors some_vectors(std::size_t words, std::size_t width) {
  word_vectors v;
  v.width = width;
  counter_random random(13);
  for (std::size_t w = 0; w < words; ++w) v.words.intern("w\xc3\xa9" + std::to_string(w));
  for (std::size_t i = 0; i < words * width; ++i) v.value.push_back(static_cast<float>(random.normal()));
  return v;
}
std::string written(const word_vectors& v, bool binary) {
  std::string text = word_vectors_header(v.size(), v.width);
  for (std::size_t w = 0; w < v.size(); ++w) append_word_vector(text, v.words[w], v.row(w), binary);
  return text;
}

TEST(WordVectors, BothFormsReadBackTheSameBits) {
  for (const std::size_t width : {1U, 3U, 50U}) {
    const auto v = some_vectors(9, width);
    for (const bool binary : {false, true}) {
      auto text = written(v, binary);
      for (const bool shorter : {false, true}) {
        if (shorter) text.pop_back();  // the last line feed
        const auto read = parse_word_vectors("f", text, binary);
        EXPECT_EQ(read.words.ids(), v.words.ids());
        EXPECT_EQ(read.value, v.value);
      }
    }
  }
}

TEST(WordVectors, OtherWritersAreReadToo) {
  // No blank at the end of lines, \r\n, tabs, exponents.
  const auto text = parse_word_vectors("f", "2 2\r\na\t1e-3 -2\r\nb .5 3E2\r\n\r\n", false);
  EXPECT_EQ(text.value, (std::vector<float>{1e-3F, -2, 0.5F, 300}));
  // Binary without line feeds.
  std::string binary = "2 1\n";
  for (const char* word : {"a ", "b "}) {
    const float v = 0.7F;
    binary += word;
    binary.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  EXPECT_EQ(parse_word_vectors("f", binary, true).value, (std::vector<float>{0.7F, 0.7F}));
}

TEST(WordVectors, WrongFilesAreRefusedWithThePlace) {
  const auto said = [](const std::string& text, bool binary = false) -> std::string {
    try {
      (void)parse_word_vectors("f", text, binary);
    } catch (const data_error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(said(""), "f:1:1: want the number of words");
  EXPECT_EQ(said("2\n"), "f:1:2: want the length of a vector");
  EXPECT_EQ(said("1 2 3\na 1 2\n"), "f:1:4: want the end of the line after two numbers");
  EXPECT_EQ(said("9 2\na 1 2\n"), "f:1:1: found 9 words of 2 numbers in a file of 10 bytes");
  EXPECT_EQ(said("18446744073709551615 2\na 1 2\n").substr(0, 12), "f:1:1: found");
  EXPECT_EQ(said("1 0\na\n").substr(0, 12), "f:1:1: found");
  EXPECT_EQ(said("2 2\na 1 2\n      \n"), "f:3:7: want a word");
  EXPECT_EQ(said("1 2\na 1 x \n"), "f:2:5: want number 2 of 2");
  EXPECT_EQ(said("1 2\na 1 nan\n"), "f:2:5: want number 2 of 2");
  EXPECT_EQ(said("1 2\na 1 2 3\n"), "f:2:7: want the end of the line after 2 numbers");
  EXPECT_EQ(said("2 2\na 1 2\na 3 4\n"), "f:3:1: found \"a\" again, want every word once");
  EXPECT_EQ(said("1 2\na 1 2\nb 3 4\n"), "f:3:1: want the end of the file after 1 words");
  auto binary = written(some_vectors(3, 4), true);
  EXPECT_NE(said(binary.substr(0, binary.size() - 3), true).find("f: word 3: found 14 bytes of numbers, want 16"),
            std::string::npos);
  EXPECT_NE(said(binary.substr(0, binary.size() - 20), true).find("f: word 3: found no blank"), std::string::npos);
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(binary.data() + binary.size() - 5, &infinite, sizeof infinite);
  EXPECT_EQ(said(binary, true), "f: word 3: number 4 is not finite");
  EXPECT_EQ(said("1 1\n\n\na\nb 1234", true), "f: word 1: found white space in it, want none");
  EXPECT_EQ(said("0                     7\n"), "f:1:1: found 0 words of 7 numbers in a file of 24 bytes");
  EXPECT_EQ(parse_word_vectors("f", "1 1\n\n\na 1234", true).words[0], "a");
}

TEST(WordVectors, NearestWordsAndAnalogiesAreThoseOfAllCosines) {
  auto v = some_vectors(200, 20);
  std::fill_n(v.value.begin() + 20, 20, 0.0F);  // a word without direction
  const word_neighbours near(v);
  const auto cosine = [&](const std::vector<double>& a, std::size_t w) {
    const auto b = v.row(w);
    const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
    const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
    return bb > 0 ? std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / std::sqrt(aa * bb) : 0.0;
  };
  const auto unit = [&](std::size_t w) {
    std::vector<double> r(v.row(w).begin(), v.row(w).end());
    const double length = std::sqrt(std::inner_product(r.begin(), r.end(), r.begin(), 0.0));
    for (auto& x : r) x /= length;
    return r;
  };
  for (const std::vector<std::uint32_t>& question : {std::vector<std::uint32_t>{5}, {5, 6, 7}}) {
    auto wanted = unit(question.back());
    for (std::size_t j = 0; question.size() == 3 && j < 20; ++j) wanted[j] += unit(6)[j] - unit(5)[j];
    std::vector<std::pair<double, std::size_t>> all;
    for (std::size_t w = 0; w < v.size(); ++w) {
      if (std::find(question.begin(), question.end(), w) == question.end()) all.emplace_back(-cosine(wanted, w), w);
    }
    std::sort(all.begin(), all.end());
    const auto found = near.nearest(question, 7);
    ASSERT_EQ(found.size(), 7U);
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(found[i].row, all[i].second);
      EXPECT_NEAR(found[i].similarity, -all[i].first, 1e-5);
    }
  }
  EXPECT_NEAR(near.similarity(2, 3), cosine(unit(2), 3), 1e-5);
  EXPECT_EQ(near.similarity(1, 3), 0);
}

TEST(WordVectors, RankCorrelationHasItsClosedForms) {
  const std::vector<double> a{1, 2, 3, 4, 5};
  EXPECT_NEAR(spearman(a, std::vector<double>{10, 20, 21, 400, 1e9}), 1, 1e-15);
  EXPECT_NEAR(spearman(a, std::vector<double>{5, 4, 3, 2, 1}), -1, 1e-15);
  // 1 - 6 sum d^2 / (n (n^2 - 1))
  EXPECT_NEAR(spearman(a, std::vector<double>{2, 1, 4, 3, 5}), 1 - 6.0 * 4 / (5 * 24), 1e-15);
  // Ties: Pearson's correlation of the ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4.
  EXPECT_NEAR(spearman(std::vector<double>{0, 7, 7, 9}, std::vector<double>{1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5),
              1e-15);
  EXPECT_TRUE(std::isnan(spearman(std::vector<double>{1, 1}, std::vector<double>{1, 2})));
  EXPECT_TRUE(std::isnan(spearman(std::vector<double>{1}, std::vector<double>{1})));
  EXPECT_TRUE(std::isnan(spearman({}, {})));
}

}  // namespace
}  // namespace paracel::alg
