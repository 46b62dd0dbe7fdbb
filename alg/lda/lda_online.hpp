// SPDX-License-Identifier: BSD-3-Clause
//
// Online variational Bayes: after each batch of documents, where s_kw is the expected number of its tokens of word w in
// topic k under the previous lambda,
//
//     lambda = (1 - rho_t) lambda + rho_t (beta + D / |batch| s)      rho_t = (offset + t)^-decay, t from 1
//
// A batch is `batch_size` documents in the order of the input, whatever the number of workers: each worker infers the
// topics of its part, and their contributions are summed in the servers when the clock ticks.
//
// lambda - beta = scale * u, where u are rows of a table: (1 - rho) goes into `scale`, which every worker computes, so
// that a step only adds rho D / |batch| / scale * s to the rows of the batch's words. All other rows stay as they are.
// When the scale becomes too small, a new generation of rows begins, all zeros, with scale 1; the previous generation's
// rows keep counting with their own decaying scale until it is 0. decay = 0 makes each batch a generation: with a batch
// of all documents that is batch variational Bayes.
//
//     row w + V (g mod 2)       u_w of generation g, K numbers
//     row 2 V + (g mod 2)       their sums over the words
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/resumable_loop.hpp>
#include <paracel/table.hpp>

#include "lda_sampler.hpp"
#include "lda_variational.hpp"

namespace paracel::alg {

/// Config of lda_online.
struct lda_online_settings {
  std::uint64_t batch_size = 128;  ///< documents of all workers
  double offset = 10;
  double decay = 0.7;
  int document_steps = 100;
  double document_tolerance = 1e-3;
};

/// The scales of the current generation of rows, to which steps add, and of the previous one.
struct generation_scale {
  std::uint64_t generation = 0;
  double scale = 1;
  double before = 0;

  /// Multiplies lambda - beta by `factor`. Returns: whether that began a generation.
  bool decay(double factor) {
    // 1e250 times the number of tokens is far from overflow.
    constexpr double least = 1e-250;
    before *= factor;
    scale *= factor;
    if (scale > least) return false;
    before = scale;
    scale = 1;
    ++generation;
    return true;
  }
};

/// Thread-safety: none. Lifetime: the paralg must outlive it. The paralg is BSP.
/// Memory: 12 bytes for each word of a document, 8 for each word of a worker's part of a batch; in the servers 8 K
/// bytes a word.
class lda_online {
 public:
  /// Divides the documents of each batch among the workers. `documents`, whose words are global numbers, are in input
  /// order and follow those of lower ranks. A collective. Cost: each document is sent once.
  lda_online(paralg& job, const lda_online_settings& settings, const lda_documents& documents, std::uint64_t words,
             const lda_priors& priors, std::uint64_t seed);

  /// Batches of a pass.
  [[nodiscard]] std::size_t batches() const noexcept { return batches_.size(); }
  void keep(resumable_loop& loop);
  /// Sets the number of steps that were done before, which rho depends on.
  void go_on_from(std::uint64_t steps) noexcept { steps_ = steps; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Writes the initial lambda, a function of the seed; `known(word, row)` fills in lambda - beta of a word, or returns
  /// false. In a clock of its own.
  void start(const std::function<bool(std::uint64_t, std::span<double>)>& known = {});
  /// A step. In a clock of its own. Cost: for n words of this worker's part of the batch a pull and an update of n + 1
  /// rows.
  void train(std::size_t batch);

  /// The lower bound of log p(all words), of all workers. A collective. `shares`: receives the documents' shares of
  /// topics, K numbers a document, in the order of numbers(). Cost: a pass, and a pull of this worker's share of all
  /// words.
  double bound(std::vector<double>* shares);
  [[nodiscard]] std::vector<std::uint64_t> numbers() const;

  /// lambda - beta: the expected counts of these words. Shape: K numbers a word.
  void pull(std::span<const std::uint64_t> words, std::span<double> rows) { pull_rows(words, rows, {}); }
  /// Their sums over all words.
  std::vector<double> totals();

 private:
  /// This worker's part of a batch; words of its documents are indices into `words`.
  struct batch_part {
    std::uint64_t documents_of_all = 0;
    std::vector<std::uint64_t> words;
    lda_bags documents;
  };

  void distribute(const lda_documents& documents);
  void add_documents(batch_part& to, std::span<const std::uint64_t> heads, std::span<const std::uint32_t> words);
  void pull_rows(std::span<const std::uint64_t> words, std::span<double> rows, std::span<double> totals);
  /// Pulls lambda of a part's words, with which documents are then inferred.
  void use_topics(const batch_part& part);
  /// Calls f(words) for pieces of this worker's share of all words.
  template <class F>
  void for_own_words(F&& f) const;
  [[nodiscard]] std::uint64_t row_of(std::uint64_t word, std::uint64_t generation) const {
    return word + words_ * (generation % 2);
  }
  [[nodiscard]] std::uint64_t totals_row(std::uint64_t generation) const { return 2 * words_ + generation % 2; }

  paralg& job_;
  lda_online_settings settings_;
  lda_priors priors_;
  std::uint64_t words_;
  std::uint64_t seed_;
  std::size_t topics_;
  std::uint64_t documents_total_ = 0;
  std::vector<batch_part> batches_;
  table<double> rows_;
  topic_inference inference_;
  std::uint64_t steps_ = 0;
  generation_scale scale_;
  // Scratch space of one call, kept to avoid reallocation.
  std::vector<std::uint64_t> ids_;
  std::vector<double> pulled_;
  std::vector<double> lambda_;
  std::vector<double> totals_;
  std::vector<double> sums_;
};

}  // namespace paracel::alg
