// SPDX-License-Identifier: BSD-3-Clause
//
// The words of a text by frequency, the text as word numbers, and what follows from the counts: which occurrences are
// trained on, the distribution of negatives, the Huffman tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/random.hpp>

#include "alg/word_count/word_table.hpp"

namespace paracel::alg {

/// The same on every worker, and for any number of them.
struct vocabulary {
  std::vector<std::string> word;     ///< greatest count first, ties by bytes
  std::vector<std::uint64_t> count;  ///< in all of the text, and in that of an initial model
  std::uint64_t total = 0;           ///< their sum
  std::uint64_t before = 0;          ///< of it, in the text of an initial model

  /// The number of words that are in the text that was read.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return total - before; }
  [[nodiscard]] std::size_t size() const noexcept { return word.size(); }
};

/// The words of the lines of this worker that are in the vocabulary, as its numbers. A sentence is a line, or 1,000
/// words of a longer one.
struct token_text {
  static constexpr std::size_t longest_sentence = 1000;
  std::vector<std::uint32_t> token;
  std::vector<std::uint64_t> begin{0};  ///< sentence s is [begin[s], begin[s + 1]) of token

  [[nodiscard]] std::size_t sentences() const noexcept { return begin.size() - 1; }
  /// The sentences of part `part` of `parts`, all of which have about the same number of tokens.
  [[nodiscard]] std::pair<std::size_t, std::size_t> part(std::uint64_t part, std::uint64_t parts) const;
};

/// Reads the lines of this worker. Words that occur less than `min_count` times in all of the text are left out, unless
/// `known` has them, the vocabulary of a model (or null): `words` has those of both, with the sums of their counts.
/// Throws: data_error when none is left, or the text cannot be read. Blocks: a collective.
/// Cost: one pass over this worker's bytes; 4 bytes a word of its lines, and the distinct ones.
token_text load_tokens(Comm comm, const std::vector<std::string>& files, const word_bytes& bytes,
                       std::uint64_t min_count, vocabulary& words, const vocabulary* known = nullptr);

/// The probability with which an occurrence of each word is trained on: (sqrt(f / sample) + 1) sample / f, at most 1,
/// for a word that is the fraction f of the text. `sample` 0: all.
std::vector<float> keep_probabilities(const vocabulary& words, double sample);

/// Words drawn with probability count^0.75 / sum. Cost: O(log words) a draw.
class noise_distribution {
 public:
  explicit noise_distribution(const vocabulary& words);
  [[nodiscard]] std::uint32_t operator()(counter_random& random) const;
  [[nodiscard]] double probability(std::uint32_t word) const;

 private:
  std::vector<double> below_;  // sums
};

/// The Huffman tree of the counts: the same for the same counts. Node 0 is the root.
struct huffman_tree {
  explicit huffman_tree(std::span<const std::uint64_t> counts);

  /// The nodes above word w, from the root, are [begin[w], begin[w + 1]) of node; `label` is 1 where the path to w
  /// takes the less frequent side.
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint32_t> node;
  std::vector<std::uint8_t> label;
};

}  // namespace paracel::alg
