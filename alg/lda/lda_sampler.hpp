// SPDX-License-Identifier: BSD-3-Clause
//
// One worker's Gibbs sampling: documents and their topics are kept here; word-topic counts and topic totals are set by
// the caller and change as tokens move. A token of word w in document d moves to topic k with probability proportional
// to
//
//     (n_dk + alpha_k) (n_wk + beta) / (n_k + V beta)                 all counts without the token itself
//
// sparse: exactly that. The product is split into beta q_k, whose sum and draws come from a tree over the topics, and
//         n_wk q_k, nonzero only for the word's topics; q_k = (n_dk + alpha_k) / (n_k + V beta). A move changes q for
//         two topics, so a token costs O(log K + topics of its word).
// mh:     a Metropolis-Hastings chain with that distribution and O(1) proposals: alternately from stale counts of the
//         word (alias tables) and from the topics of the document's tokens.
//
// Source: H. Yu et al., "A scalable asynchronous distributed algorithm for topic modeling", WWW 2015 (F+LDA, document
// by document); J. Yuan et al., "LightLDA", WWW 2015.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

namespace paracel::alg {

/// Documents as lists of words. Words are indices into a list kept by the owner.
struct lda_documents {
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint32_t> word;
  std::vector<std::uint64_t> number;  ///< global number of each document

  [[nodiscard]] std::size_t size() const noexcept { return number.size(); }
  [[nodiscard]] std::span<const std::uint32_t> of(std::size_t d) const {
    return std::span(word).subspan(begin[d], begin[d + 1] - begin[d]);
  }
};

/// The priors: alpha by topic, beta for all words, and the number of words.
struct lda_priors {
  std::vector<double> alpha;
  double beta = 0.01;
  double words = 0;
};

/// Sums of weights in a complete binary tree: leaf k has weight k.
/// Cost: set and draw O(log K)
class weight_tree {
 public:
  void resize(std::size_t n) {
    leaves_ = std::bit_ceil(std::max<std::size_t>(n, 1));
    node_.assign(2 * leaves_, 0);
  }
  [[nodiscard]] double total() const { return node_[1]; }
  [[nodiscard]] const double* leaf() const { return node_.data() + leaves_; }
  void set(std::size_t k, double weight) {
    // Recomputed from both children and not by a difference, so that errors do not accumulate. The changed child's sum
    // stays in a register: read from memory, each level would wait for the store of the one below.
    std::size_t n = leaves_ + k;
    for (node_[n] = weight; n > 1; node_[n] = weight) {
      weight += node_[n ^ 1U];
      n >>= 1U;
    }
  }
  template <class F>
  void set_all(std::size_t n, F&& weight) {
    for (std::size_t k = 0; k < n; ++k) node_[leaves_ + k] = weight(k);
    for (std::size_t i = leaves_ - 1; i > 0; --i) node_[i] = node_[2 * i] + node_[2 * i + 1];
  }
  /// The leaf in which `at`, in [0, total), lies.
  [[nodiscard]] std::size_t find(double at) const {
    std::size_t n = 1;
    while (n < leaves_) {
      n *= 2;
      // Never descends into a part without weight, whatever the rounding.
      if (at >= node_[n] && node_[n + 1] > 0) {
        at -= node_[n];
        ++n;
      }
    }
    return n - leaves_;
  }

 private:
  std::size_t leaves_ = 1;
  std::vector<double> node_;
};

/// Draws from fixed weights in O(1).
/// Source: M. Vose, "A linear algorithm for generating random numbers with a given distribution", 1991.
class alias_table {
 public:
  struct cell {
    double keep;
    std::uint32_t own;
    std::uint32_t other;
  };
  /// Fills `cells` (as many as weights): item[i] is drawn with probability weight[i] / total.
  static void build(std::span<const double> weight, std::span<const std::uint32_t> item, double total,
                    std::span<cell> cells, std::vector<std::uint32_t>& work) {
    const std::size_t n = weight.size();
    work.resize(n);
    std::size_t low = 0;   // work[0, low): less than the mean
    std::size_t high = n;  // work[high, n): the others
    const double scale = static_cast<double>(n) / total;
    for (std::size_t i = 0; i < n; ++i) {
      cells[i] = {weight[i] * scale, item[i], item[i]};
      if (cells[i].keep < 1) work[low++] = static_cast<std::uint32_t>(i);
      else work[--high] = static_cast<std::uint32_t>(i);
    }
    while (low > 0 && high < n) {
      const auto small = work[--low];
      const auto large = work[high];
      cells[small].other = cells[large].own;
      cells[large].keep -= 1 - cells[small].keep;
      if (cells[large].keep < 1) {
        ++high;
        work[low++] = large;
      }
    }
    while (low > 0) cells[work[--low]].keep = 1;
    for (; high < n; ++high) cells[work[high]].keep = 1;
  }
  /// u: in [0, 1).
  static std::uint32_t draw(std::span<const cell> cells, double u) {
    const double at = u * static_cast<double>(cells.size());
    const auto i = std::min(static_cast<std::size_t>(at), cells.size() - 1);
    return at - static_cast<double>(i) < cells[i].keep ? cells[i].own : cells[i].other;
  }
};

/// Thread-safety: none
/// Cost: for each word and topic 12 bytes (mh: 16, and 16 for each topic of a word); 8 bytes a token.
class lda_sampler {
 public:
  enum class method { sparse, mh };

  /// `words`: one more than the greatest word of the documents. Topics are drawn uniformly, as a function of the seed
  /// and the document's number.
  lda_sampler(lda_documents documents, std::size_t words, lda_priors priors, method how, std::uint64_t seed)
      : documents_(std::move(documents)),
        priors_(std::move(priors)),
        topics_(priors_.alpha.size()),
        words_(words),
        method_(how),
        seed_(seed),
        topic_(documents_.word.size()),
        counts_(words * topics_),
        before_(words * topics_),
        totals_(topics_),
        totals_before_(topics_),
        in_document_(topics_) {
    for (std::size_t d = 0; d < documents_.size(); ++d) {
      counter_random random(seed_, 0, documents_.number[d]);
      for (auto i = documents_.begin[d]; i < documents_.begin[d + 1]; ++i) {
        topic_[i] = static_cast<std::uint32_t>(random.below(topics_));
        ++counts_[documents_.word[i] * topics_ + topic_[i]];
        ++totals_[topic_[i]];
      }
    }
  }

  [[nodiscard]] const lda_documents& documents() const noexcept { return documents_; }
  [[nodiscard]] const lda_priors& priors() const noexcept { return priors_; }
  void set_priors(const lda_priors& priors) { priors_ = priors; }
  [[nodiscard]] std::size_t topics() const noexcept { return topics_; }
  [[nodiscard]] std::span<const std::uint32_t> topics_of(std::size_t d) const {
    return std::span(topic_).subspan(documents_.begin[d], documents_.begin[d + 1] - documents_.begin[d]);
  }

  /// The counts of all workers at the start of a clock. Shape: words x topics, and topics; fill them, then call
  /// `begin`.
  [[nodiscard]] std::span<std::int32_t> counts() noexcept { return counts_; }
  [[nodiscard]] std::span<std::int64_t> totals() noexcept { return totals_; }
  /// Registers the state that carries over from one sweep to the next.
  void keep(resumable_loop& loop) { loop.keep("topics", topic_); }
  void begin() {
    before_ = counts_;
    totals_before_ = totals_;
    if (method_ == method::sparse) {
      list_topics();
      tree_.resize(topics_);
      tree_.set_all(topics_, [&](std::size_t k) { return weight_of(k); });
    } else {
      build_alias();
    }
  }
  /// Samples the tokens of documents [from, to). `sweep`: its number, for the random numbers.
  void sweep(std::size_t from, std::size_t to, std::uint64_t sweep) {
    for (std::size_t d = from; d < to; ++d) {
      counter_random random(seed_, 1 + sweep, documents_.number[d]);
      if (method_ == method::sparse) sample_document(d, random);
      else propose_document(d, random);
    }
  }
  /// Calls f(word, deltas) for each word whose counts have changed since `begin` (initially: all words).
  template <class F>
  void for_each_change(F&& f) {
    change_.resize(topics_);
    for (std::size_t w = 0; w < words_; ++w) {
      bool changed = false;
      for (std::size_t k = 0; k < topics_; ++k) {
        change_[k] = counts_[w * topics_ + k] - before_[w * topics_ + k];
        changed = changed || change_[k] != 0;
      }
      if (changed) f(w, std::span<const std::int32_t>(change_));
    }
  }
  [[nodiscard]] std::vector<std::int64_t> total_changes() const {
    auto changes = totals_;
    for (std::size_t k = 0; k < topics_; ++k) changes[k] -= totals_before_[k];
    return changes;
  }

 private:
  /// q_k
  [[nodiscard]] double weight_of(std::size_t k) const {
    return (in_document_[k] + priors_.alpha[k]) / (static_cast<double>(totals_[k]) + priors_.words * priors_.beta);
  }
  /// Loads the document's counts into `in_document_`, its topics into `present_`.
  void enter(std::size_t d) {
    present_.clear();
    for (const auto k : topics_of(d)) {
      if (in_document_[k]++ == 0) present_.push_back(k);
    }
  }

  /// Lists the topics of each word.
  void list_topics() {
    word_topics_.resize(counts_.size());
    word_size_.resize(words_);
    for (std::size_t w = 0; w < words_; ++w) {
      auto* const list = &word_topics_[w * topics_];
      std::uint32_t n = 0;
      for (std::size_t k = 0; k < topics_; ++k) {
        list[n] = static_cast<std::uint32_t>(k);
        n += counts_[w * topics_ + k] != 0 ? 1 : 0;
      }
      word_size_[w] = n;
    }
  }

  // ---- sparse

  void sample_document(std::size_t d, counter_random& random) {
    enter(d);
    // After the previous document all leaves have the weight of topics without tokens.
    if (present_.size() * 4 > topics_) tree_.set_all(topics_, [&](std::size_t k) { return weight_of(k); });
    else
      for (const auto k : present_) tree_.set(k, weight_of(k));
    const double* const weight = tree_.leaf();
    sums_.resize(topics_);
    const double denominator = priors_.words * priors_.beta;
    for (auto i = documents_.begin[d]; i < documents_.begin[d + 1]; ++i) {
      const std::size_t w = documents_.word[i];
      auto* const count = &counts_[w * topics_];
      auto* const list = &word_topics_[w * topics_];
      const auto old = topic_[i];
      --in_document_[old];
      --totals_[old];
      if (--count[old] == 0) remove(list, word_size_[w], old);
      tree_.set(old, (in_document_[old] + priors_.alpha[old]) / (static_cast<double>(totals_[old]) + denominator));

      const std::uint32_t n = word_size_[w];
      double sum = 0;
      std::uint32_t j = 0;
      // By four, so that only every fourth addition waits for the one before.
      for (; j + 4 <= n; j += 4) {
        const auto part = [&](std::uint32_t k) { return count[list[k]] * weight[list[k]]; };
        const double one = part(j);
        const double two = one + part(j + 1);
        const double three = two + part(j + 2);
        const double four = two + (part(j + 2) + part(j + 3));
        sums_[j] = sum + one;
        sums_[j + 1] = sum + two;
        sums_[j + 2] = sum + three;
        sums_[j + 3] = sum += four;
      }
      for (; j < n; ++j) {
        sum += count[list[j]] * weight[list[j]];
        sums_[j] = sum;
      }
      double at = random.uniform() * (sum + priors_.beta * tree_.total());
      std::uint32_t now = 0;
      if (at < sum) {
        j = 0;
        while (sums_[j] <= at) ++j;
        now = list[j];
      } else {
        at = (at - sum) / priors_.beta;
        now = static_cast<std::uint32_t>(tree_.find(at));
      }
      if (in_document_[now]++ == 0) present_.push_back(now);  // duplicates in present_ do no harm
      ++totals_[now];
      if (count[now]++ == 0) list[word_size_[w]++] = now;
      tree_.set(now, (in_document_[now] + priors_.alpha[now]) / (static_cast<double>(totals_[now]) + denominator));
      topic_[i] = now;
    }
    for (const auto k : present_) in_document_[k] = 0;
    if (present_.size() * 4 <= topics_) {
      for (const auto k : present_) tree_.set(k, weight_of(k));
    } else {
      tree_.set_all(topics_, [&](std::size_t k) { return weight_of(k); });
    }
  }
  static void remove(std::uint32_t* list, std::uint32_t& n, std::uint32_t topic) {
    std::uint32_t j = 0;
    while (list[j] != topic) ++j;
    list[j] = list[--n];
  }

  // ---- mh

  /// Builds the proposal tables by word from the current counts.
  void build_alias() {
    list_topics();
    stale_ = counts_;
    tokens_since_ = 0;
    const double denominator = priors_.words * priors_.beta;
    inverse_stale_.resize(topics_);
    std::vector<std::uint32_t> all(topics_);
    std::vector<double> weight(topics_);
    smooth_ = 0;
    for (std::size_t k = 0; k < topics_; ++k) {
      inverse_stale_[k] = 1 / (static_cast<double>(totals_[k]) + denominator);
      all[k] = static_cast<std::uint32_t>(k);
      weight[k] = priors_.beta * inverse_stale_[k];
      smooth_ += weight[k];
    }
    smooth_cells_.resize(topics_);
    alias_table::build(weight, all, smooth_, smooth_cells_, work_);
    prior_ = 0;
    for (const auto a : priors_.alpha) prior_ += a;
    prior_cells_.resize(topics_);
    alias_table::build(priors_.alpha, all, prior_, prior_cells_, work_);
    word_begin_.assign(words_ + 1, 0);
    for (std::size_t w = 0; w < words_; ++w) word_begin_[w + 1] = word_begin_[w] + word_size_[w];
    word_cells_.resize(word_begin_[words_]);
    word_mass_.resize(words_);
    for (std::size_t w = 0; w < words_; ++w) {
      const std::span items(&word_topics_[w * topics_], word_size_[w]);
      double mass = 0;
      for (std::size_t j = 0; j < items.size(); ++j) {
        weight[j] = stale_[w * topics_ + items[j]] * inverse_stale_[items[j]];
        mass += weight[j];
      }
      word_mass_[w] = mass;
      const auto cells = std::span(word_cells_).subspan(word_begin_[w], items.size());
      if (mass > 0) alias_table::build(std::span(weight).first(items.size()), items, mass, cells, work_);
    }
  }
  /// The weight of a topic among the proposals of word w for a token that the tables count in topic `old`, excluding
  /// the token itself: otherwise the proposal would depend on the token's topic, and the chain would converge to
  /// another distribution.
  [[nodiscard]] double proposal_weight(std::size_t w, std::uint32_t k, std::uint32_t old) const {
    const double inverse = inverse_stale_[k];
    const double count = stale_[w * topics_ + k] + priors_.beta;
    return k == old ? (count - 1) * (inverse / (1 - inverse)) : count * inverse;
  }
  std::uint32_t propose_by_word(std::size_t w, std::uint32_t old, counter_random& random) const {
    // The tables include the token, so its topic is proposed too often: some of these proposals are redrawn.
    const double with = (stale_[w * topics_ + old] + priors_.beta) * inverse_stale_[old];
    const double keep = proposal_weight(w, old, old) / with;
    for (int tries = 0; tries < most_tries; ++tries) {
      const auto k = draw_by_word(w, random);
      if (k != old || random.uniform() < keep) return k;
    }
    return old;
  }
  std::uint32_t draw_by_word(std::size_t w, counter_random& random) const {
    const double at = random.uniform() * (word_mass_[w] + smooth_);
    if (at < word_mass_[w]) {
      return alias_table::draw(std::span(word_cells_).subspan(word_begin_[w], word_begin_[w + 1] - word_begin_[w]),
                               at / word_mass_[w]);
    }
    return alias_table::draw(smooth_cells_, std::min((at - word_mass_[w]) / smooth_, 0x1.fffffffffffffp-1));
  }
  void propose_document(std::size_t d, counter_random& random) {
    enter(d);
    const auto begin = documents_.begin[d];
    const auto length = documents_.begin[d + 1] - begin;
    // Proposals from stale counts are rejected more often: the tables are rebuilt at intervals that make this cost a
    // few operations a token.
    if (tokens_since_ > counts_.size() / 4 + 4096) build_alias();
    tokens_since_ += length;
    const double denominator = priors_.words * priors_.beta;
    const auto& alpha = priors_.alpha;
    for (std::uint64_t i = begin; i < begin + length; ++i) {
      const std::size_t w = documents_.word[i];
      auto* const count = &counts_[w * topics_];
      const auto old = topic_[i];
      --in_document_[old];
      --totals_[old];
      --count[old];
      const auto target = [&](std::uint32_t k) {
        return (in_document_[k] + alpha[k]) * (count[k] + priors_.beta) /
               (static_cast<double>(totals_[k]) + denominator);
      };
      // The proposal distributions do not depend on the token itself.
      const auto by_word = [&](std::uint32_t k) { return proposal_weight(w, k, old); };
      const auto by_document = [&](std::uint32_t k) { return in_document_[k] + alpha[k]; };
      auto now = old;
      double here = target(now);
      for (int cycle = 0; cycle < cycles; ++cycle) {
        auto next = propose_by_word(w, old, random);
        if (next != now) {
          const double there = target(next);
          if (random.uniform() * here * by_word(next) < there * by_word(now)) {
            now = next;
            here = there;
          }
        }
        // The topic of another token of the document, or a draw from the prior.
        const auto others = static_cast<double>(length - 1);
        const double at = random.uniform() * (others + prior_);
        if (at < others) {
          const auto other = begin + static_cast<std::uint64_t>(at);
          next = topic_[other < i ? other : other + 1];
        } else {
          next = alias_table::draw(prior_cells_, std::min((at - others) / prior_, 0x1.fffffffffffffp-1));
        }
        if (next != now) {
          const double there = target(next);
          if (random.uniform() * here * by_document(next) < there * by_document(now)) {
            now = next;
            here = there;
          }
        }
      }
      if (in_document_[now]++ == 0) present_.push_back(now);
      ++totals_[now];
      ++count[now];
      topic_[i] = now;
    }
    for (const auto k : present_) in_document_[k] = 0;
  }

  static constexpr int cycles = 2;  // each with a proposal by word and one by document
  // Limit of draws for a proposal by word; about five are needed if the token is the only one of its word, otherwise
  // mostly one.
  static constexpr int most_tries = 1000;

  lda_documents documents_;
  lda_priors priors_;
  std::size_t topics_;
  std::size_t words_;
  method method_;
  std::uint64_t seed_;
  std::vector<std::uint32_t> topic_;  // of each token
  std::vector<std::int32_t> counts_;  // words x topics, and as they were at `begin`
  std::vector<std::int32_t> before_;
  std::vector<std::int64_t> totals_;  // topics
  std::vector<std::int64_t> totals_before_;
  std::vector<std::int32_t> in_document_;   // topics; 0 between documents
  std::vector<std::uint32_t> present_;      // topics of the document
  std::vector<std::uint32_t> word_topics_;  // words x topics: the first word_size_[w] of a row have nonzero counts
  std::vector<std::uint32_t> word_size_;
  std::vector<std::int32_t> change_;
  weight_tree tree_;
  std::vector<double> sums_;
  // mh
  std::vector<std::int32_t> stale_;  // counts_ when the tables were built
  std::uint64_t tokens_since_ = 0;
  std::vector<double> inverse_stale_;
  std::vector<alias_table::cell> smooth_cells_;
  std::vector<alias_table::cell> prior_cells_;
  std::vector<alias_table::cell> word_cells_;
  std::vector<std::uint64_t> word_begin_;
  std::vector<double> word_mass_;
  std::vector<std::uint32_t> work_;
  double smooth_ = 0;
  double prior_ = 0;
};

}  // namespace paracel::alg
