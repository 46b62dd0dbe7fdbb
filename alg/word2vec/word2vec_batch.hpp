// SPDX-License-Identifier: BSD-3-Clause
//
// A batch of a worker: some of its sentences, with the rows that they need, each once. Its contents are a function of
// seed, worker and batch number, so it can be built before its rows arrive, and rebuilt after a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <paracel/random.hpp>

#include "vocabulary.hpp"
#include "word2vec_kernel.hpp"

namespace paracel::alg {

/// The hyperparameters, independent of data and workers.
struct word2vec_model {
  bool cbow = false;          ///< from the mean of the words around a word; else skip-gram: from each of them
  bool hierarchical = false;  ///< hierarchical softmax; else negative sampling
  std::size_t k = 100;        ///< numbers of a vector
  std::size_t window = 5;     ///< at most this many words to either side
  std::size_t negatives = 5;
  /// The negatives of a batch are drawn from this many draws of the noise distribution; 0: as many as it has tokens.
  /// Each draw is then used `negatives` times on average. With far fewer, each is pushed away from all words of a
  /// batch.
  std::size_t noise_words = 0;
  double sample = 1e-3;
  double alpha = 0.025;
  std::uint64_t seed = 0;
};

/// Words are slots: slot s is the row input[s] or output[s], the numbers of words or nodes in ascending order.
struct word2vec_batch {
  std::vector<std::uint64_t> input;   ///< rows of vectors: words
  std::vector<std::uint64_t> output;  ///< rows of the other side: words, or nodes of the Huffman tree
  std::vector<std::uint32_t> token;   ///< slots of `input`
  std::vector<std::uint32_t> end;     ///< of sentences, in `token`
  /// The outputs of the word in slot s are [begin[s], begin[s + 1]) of target, with labels.
  std::vector<std::uint32_t> begin;
  std::vector<std::uint32_t> target;
  std::vector<float> label;
  std::vector<std::uint32_t> noise;  ///< slots of `output` from which negatives are drawn
  counter_random random{0};          ///< for the remaining draws
};

/// The batches of all rounds, numbered from 0. Those of the first round are smaller: vectors begin near 0, and workers
/// that leave it in different directions would undo each other's work.
struct batch_plan {
  std::uint64_t batches = 1;  ///< of each worker in a round
  std::uint64_t first = 1;    ///< times as many in the first round

  [[nodiscard]] std::uint64_t of_round(std::uint64_t round) const noexcept {
    return round == 0 ? first * batches : batches;
  }
  /// The batches of all rounds before this one.
  [[nodiscard]] std::uint64_t before(std::uint64_t round) const noexcept {
    return round == 0 ? 0 : (first + round - 1) * batches;
  }
  [[nodiscard]] std::uint64_t round_of(std::uint64_t number) const noexcept {
    return number < first * batches ? 0 : number / batches - first + 1;
  }
  /// Rounds that are done before batch `number`.
  [[nodiscard]] double rounds_before(std::uint64_t number) const noexcept {
    const auto round = round_of(number);
    return static_cast<double>(round) +
           static_cast<double>(number - before(round)) / static_cast<double>(of_round(round));
  }
};

/// Builds the batches of a worker. Lifetime: text and words must outlive it. Thread-safety: none.
class word2vec_batcher {
 public:
  /// Part `rank` of `size`; a round divides all text into batches of each worker as `plan` says.
  word2vec_batcher(const token_text& text, const vocabulary& words, const word2vec_model& model, std::size_t rank,
                   std::size_t size, batch_plan plan);

  /// Builds batch `number`; numbers continue from round to round.
  void cut(std::uint64_t number, word2vec_batch& into);
  /// The fraction of its change that each worker sends for a row of `input` or `output` (their ids). All of them have
  /// seen the same row, so that changes of frequent words are averaged, and those of rare words are added: W workers
  /// with a steps each, a small for rare words, move it by the fraction (1 - exp(-W c a)) / (W (1 - exp(-c a))) of the
  /// sum. c is `pace` times the step size, for a batch of any round but the first.
  [[nodiscard]] float input_share(std::uint64_t id, double pace) const { return share(input_steps_[id], pace); }
  [[nodiscard]] float output_share(std::uint64_t id, double pace) const { return share(output_steps_[id], pace); }
  [[nodiscard]] std::size_t outputs() const noexcept { return output_steps_.size(); }

 private:
  [[nodiscard]] float share(float steps, double pace) const;
  void expect_steps(std::uint64_t batches);

  const token_text& text_;
  const vocabulary& words_;
  word2vec_model model_;
  std::size_t rank_;
  std::size_t size_;
  batch_plan plan_;
  std::vector<float> keep_;
  std::optional<noise_distribution> noise_;
  std::optional<huffman_tree> tree_;
  std::vector<float> input_steps_;  // expected in a batch of a worker, by id
  std::vector<float> output_steps_;
  // While a batch is built: marks and slots, by id.
  std::vector<std::uint64_t> marks_;
  std::vector<std::uint32_t> input_slot_;
  std::vector<std::uint32_t> output_slot_;
};

/// Sums of measurements, taken at every 16th word.
struct word2vec_loss {
  double sum = 0;          ///< of L, over predictions
  double predictions = 0;  ///< of a word from one input
};

/// Trains on the tokens of a batch, in their order. `input` and `output`: its rows. The step size falls linearly from
/// `first_alpha` to `last_alpha`.
void train_batch(const word2vec_model& model, word2vec_batch& batch, padded_rows& input, padded_rows& output,
                 double first_alpha, double last_alpha, word2vec_kernel& kernel, word2vec_loss& loss);

}  // namespace paracel::alg
