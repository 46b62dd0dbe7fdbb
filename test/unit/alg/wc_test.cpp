// SPDX-License-Identifier: BSD-3-Clause
#include "alg/word_count/word_table.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

std::vector<std::string> words_of(const word_bytes& bytes, std::string_view text) {
  std::vector<std::string> words;
  bytes.for_each(text, [&](std::string_view w) { words.emplace_back(w); });
  return words;
}

using list = std::vector<std::string>;

TEST(WordBytes, ParacelWordsAreRunsOfLettersDigitsHyphenAndUnderscore) {
  EXPECT_EQ(words_of(word_bytes::paracel(), "Ge1:1 well-known, a_b.C\n"), (list{"Ge1", "1", "well-known", "a_b", "C"}));
  EXPECT_EQ(words_of(word_bytes::paracel(), "na\xc3\xafve"), (list{"na", "ve"}));
  EXPECT_EQ(words_of(word_bytes::paracel(), ""), list{});
  EXPECT_EQ(words_of(word_bytes::paracel(), " ,.;\n"), list{});
}

TEST(WordBytes, SpaceWordsEndAtTheSixWhiteSpaceBytesOnly) {
  EXPECT_EQ(words_of(word_bytes::space(), "a\tb\nc\vd\fe\rf g"), (list{"a", "b", "c", "d", "e", "f", "g"}));
  const std::string text("x\0y \xa0z", 6);
  EXPECT_EQ(words_of(word_bytes::space(), text), (list{std::string("x\0y", 3), "\xa0z"}));
}

TEST(WordTable, CountsAsAMapDoesForWordsOfEveryLength) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    counter_random random(seed);
    std::map<std::string, std::uint64_t> expected;
    std::string text;
    for (int i = 0; i < 60000; ++i) {
      // Few letters, so that many words share a prefix and length.
      std::string word(1 + random.below(random.below(50) == 0 ? 40 : 9), 'a');
      for (auto& c : word) c = static_cast<char>('a' + random.below(2));
      ++expected[word];
      text += word + (i % 7 == 0 ? '\n' : ' ');
    }
    text.pop_back();  // the last word ends with the text
    word_table table;
    const char* const end = text.data() + text.size();
    word_bytes::paracel().for_each(text, [&](std::string_view w) { table.add(w, end); });
    EXPECT_EQ(table.total(), 60000U);
    const auto sorted = table.sorted();
    ASSERT_EQ(sorted.size(), expected.size());
    auto e = expected.begin();
    for (const auto& [word, count] : sorted) {
      EXPECT_EQ(word, e->first);
      EXPECT_EQ(count, e->second);
      ++e;
    }
  }
}

TEST(WordTable, TheFirstAreThoseOfGreatestCountAndOfThoseTheLeastBytes) {
  word_table table;
  counter_random random(7);
  std::vector<counted_word> all;
  std::vector<std::string> names;
  for (int i = 0; i < 5000; ++i) names.push_back("w" + std::to_string(i));
  for (const auto& name : names) {
    const auto count = 1 + random.below(20);
    table.add(name, name.data() + name.size(), count);
    all.push_back({name, count});
  }
  std::sort(all.begin(), all.end(), before);
  for (const std::size_t k : {0U, 1U, 100U, 4999U, 5000U, 6000U}) {
    const auto top = table.top(k);
    ASSERT_EQ(top.size(), std::min<std::size_t>(k, all.size()));
    for (std::size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].word, all[i].word);
      EXPECT_EQ(top[i].count, all[i].count);
    }
  }
}

TEST(WordTable, WordsSurviveTheirTextAndThePackedForm) {
  word_table table;
  std::vector<std::byte> packed;
  {
    const std::string text = "alpha beta " + std::string(1 << 19, 'x');
    word_bytes::space().for_each(text, [&](std::string_view w) { table.add(w, text.data() + text.size(), 3); });
  }
  table.for_each([&](std::string_view word, std::uint64_t count, std::uint32_t) { pack_word(packed, word, count); });
  word_table back;
  unpack_words(packed,
               [&](std::string_view word, std::uint64_t count) { back.add(word, word.data() + word.size(), count); });
  EXPECT_EQ(back.size(), 3U);
  EXPECT_EQ(back.total(), 9U);
  EXPECT_EQ(back.sorted()[2].word.size(), std::size_t{1} << 19);
}

TEST(WordTable, CountsMayNeedMoreThan32Bits) {
  constexpr std::uint64_t most = 0xffffffff;
  word_table table;
  const std::vector<std::string> words{"x", "eightlet", "ninelette"};
  for (const auto& word : words) {
    const char* const end = word.data() + word.size();
    table.add(word, end, most);
    for (int i = 0; i < 3; ++i) table.add(word);
    table.add(word, end, most * most);
  }
  table.add("once");
  const std::string large = "large";
  table.add(large, large.data() + large.size(), most + 1);
  for (int i = 0; i < 1000; ++i) table.add("w" + std::to_string(i));  // parts grow
  std::map<std::string, std::uint64_t> counts;
  table.for_each([&](std::string_view w, std::uint64_t n, std::uint32_t) { counts[std::string(w)] = n; });
  for (const auto& word : words) EXPECT_EQ(counts[word], most + 3 + most * most);
  EXPECT_EQ(counts["once"], 1U);
  EXPECT_EQ(counts["large"], most + 1);
  EXPECT_EQ(counts.size(), 1005U);
}

TEST(WordTable, APartHasTheWordsOfItsHashesAndIsVisitedInSteps) {
  word_table table;
  for (int i = 0; i < 5000; ++i) {
    const auto word = "word " + std::to_string(i);
    table.add(word, word.data() + word.size(), 2);
  }
  std::size_t found = 0;
  for (std::size_t p = 0; p < word_table::parts; ++p) {
    const auto part = table.take_part(p);
    const auto hashes = word_table::hashes_of(p);
    std::set<std::string> words;
    std::size_t at = 0;
    for (bool stopped = true; stopped;) {
      int step = 0;
      stopped = false;
      part.visit(at, [&](std::string_view word, std::uint64_t count, std::uint32_t hash) {
        EXPECT_TRUE(words.insert(std::string(word)).second);
        EXPECT_EQ(count, 2U);
        EXPECT_EQ(hash, word_table::hash_of(word, word.data() + word.size()));
        EXPECT_TRUE(hashes.first <= hash && hash <= hashes.second);
        stopped = ++step == 7;
        return !stopped;
      });
    }
    EXPECT_EQ(words.size(), part.size());
    found += part.size();
  }
  EXPECT_EQ(found, 5000U);
  EXPECT_EQ(table.size(), 0U);
}

TEST(WordTable, TheHashThatNamesTheOwnerIsAFunctionOfTheWord) {
  word_table a;
  word_table b;
  b.add("other");
  for (const char* word : {"x", "eightlet", "ninelette", "a word of some length"}) {
    a.add(word);
    const std::string padded = std::string(word) + "zzzzzzzzzz";  // shows reads beyond the word
    b.add(std::string_view(padded).substr(0, std::string_view(word).size()), padded.data() + padded.size());
  }
  std::map<std::string, std::uint32_t> of_a;
  a.for_each([&](std::string_view w, std::uint64_t, std::uint32_t h) { of_a[std::string(w)] = h; });
  b.for_each([&](std::string_view w, std::uint64_t, std::uint32_t h) {
    if (w != "other") {
      EXPECT_EQ(of_a.at(std::string(w)), h) << w;
    }
  });
}

}  // namespace
}  // namespace paracel::alg
