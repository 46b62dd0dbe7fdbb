// SPDX-License-Identifier: BSD-3-Clause
#include "word2vec_batch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace paracel::alg {

namespace {

constexpr std::uint64_t batch_stream = 1;
constexpr std::size_t measured_places = 16;  // the loss is measured at one position in this many
constexpr std::size_t bits = 64;

void mark(std::vector<std::uint64_t>& marks, std::uint64_t id) { marks[id / bits] |= std::uint64_t{1} << id % bits; }

/// Collects the marked ids, ascending, and the slot of each; clears the marks.
void collect(std::vector<std::uint64_t>& marks, std::vector<std::uint64_t>& ids, std::vector<std::uint32_t>& slot) {
  ids.clear();
  for (std::size_t i = 0; i < marks.size(); ++i) {
    for (auto word = std::exchange(marks[i], 0); word != 0; word &= word - 1) {
      const auto id = i * bits + static_cast<std::size_t>(std::countr_zero(word));
      slot[id] = static_cast<std::uint32_t>(ids.size());
      ids.push_back(id);
    }
  }
}

}  // namespace

word2vec_batcher::word2vec_batcher(const token_text& text, const vocabulary& words, const word2vec_model& model,
                                   std::size_t rank, std::size_t size, batch_plan plan)
    : text_(text),
      words_(words),
      model_(model),
      rank_(rank),
      size_(size),
      plan_(plan),
      keep_(keep_probabilities(words, model.sample)) {
  if (model.hierarchical) tree_.emplace(words.count);
  else noise_.emplace(words);
  expect_steps(plan.batches);
  marks_.resize(std::max(words.size(), output_steps_.size()) / bits + 1);
  input_slot_.resize(words.size());
  output_slot_.resize(output_steps_.size());
}

/// A step with one other row counts as one.
void word2vec_batcher::expect_steps(std::uint64_t batches) {
  const double around = static_cast<double>(model_.window) + 1;  // words that predict a word, on average
  const double inputs = model_.cbow ? 1 : around;
  // The counts may be those of several texts, of which this one is trained on.
  const double parts = static_cast<double>(batches) * static_cast<double>(size_) * static_cast<double>(words_.total) /
                       static_cast<double>(std::max<std::uint64_t>(words_.tokens(), 1));
  output_steps_.assign(model_.hierarchical ? words_.size() - std::min<std::size_t>(words_.size(), 1) : words_.size(),
                       0);
  double kept = 0;
  for (std::size_t w = 0; w < words_.size(); ++w) kept += keep_[w] * static_cast<double>(words_.count[w]) / parts;
  for (std::size_t w = 0; w < words_.size(); ++w) {
    const double here = keep_[w] * static_cast<double>(words_.count[w]) / parts;
    if (model_.hierarchical) {
      input_steps_.push_back(
          static_cast<float>(here * around * static_cast<double>(tree_->begin[w + 1] - tree_->begin[w])));
      for (auto p = tree_->begin[w]; p < tree_->begin[w + 1]; ++p)
        output_steps_[tree_->node[p]] += static_cast<float>(here * inputs);
      continue;
    }
    const auto negatives = static_cast<double>(model_.negatives);
    input_steps_.push_back(static_cast<float>(here * around * (negatives + 1)));
    output_steps_[w] =
        static_cast<float>(inputs * (here + kept * negatives * noise_->probability(static_cast<std::uint32_t>(w))));
  }
}

float word2vec_batcher::share(float steps, double pace) const {
  const double way = pace * static_cast<double>(steps);
  const auto workers = static_cast<double>(size_);
  if (size_ == 1 || way < 1e-12) return 1;
  return static_cast<float>(std::expm1(-workers * way) / (workers * std::expm1(-way)));
}

void word2vec_batcher::cut(std::uint64_t number, word2vec_batch& into) {
  into.random = counter_random(model_.seed, batch_stream, mix64(rank_) + number);
  auto& random = into.random;
  const auto [first, last] =
      text_.part(number - plan_.before(plan_.round_of(number)), plan_.of_round(plan_.round_of(number)));
  into.token.clear();
  into.end.clear();
  for (auto s = first; s < last; ++s) {
    const auto begin = into.token.size();
    for (auto t = text_.begin[s]; t < text_.begin[s + 1]; ++t) {
      const auto w = text_.token[t];
      if (keep_[w] >= 1 || random.uniform() < static_cast<double>(keep_[w])) into.token.push_back(w);
    }
    // A single word has no context that predicts it.
    if (into.token.size() < begin + 2) into.token.resize(begin);
    else into.end.push_back(static_cast<std::uint32_t>(into.token.size()));
  }
  for (const auto w : into.token) mark(marks_, w);
  collect(marks_, into.input, input_slot_);
  for (auto& w : into.token) w = input_slot_[w];

  into.noise.clear();
  into.target.clear();
  into.label.clear();
  into.begin.assign(1, 0);
  if (tree_) {
    for (const auto w : into.input) {
      for (auto p = tree_->begin[w]; p < tree_->begin[w + 1]; ++p) {
        into.target.push_back(tree_->node[p]);
        into.label.push_back(tree_->label[p]);
      }
      into.begin.push_back(static_cast<std::uint32_t>(into.target.size()));
    }
  } else {
    for (const auto w : into.input) {
      into.target.push_back(static_cast<std::uint32_t>(w));
      into.label.push_back(1);
      into.begin.push_back(static_cast<std::uint32_t>(into.target.size()));
    }
    const auto draws = model_.noise_words > 0 ? model_.noise_words : into.token.size();
    for (std::size_t i = 0; i < draws && !into.token.empty() && model_.negatives > 0; ++i)
      into.noise.push_back((*noise_)(random));
  }
  for (const auto id : into.target) mark(marks_, id);
  for (const auto id : into.noise) mark(marks_, id);
  collect(marks_, into.output, output_slot_);
  for (auto& id : into.target) id = output_slot_[id];
  for (auto& id : into.noise) id = output_slot_[id];
}

namespace {

/// The state that the steps of a batch share.
class trainer {
 public:
  trainer(const word2vec_model& model, word2vec_batch& batch, padded_rows& input, padded_rows& output,
          word2vec_kernel& kernel, word2vec_loss& loss)
      : model_(model),
        batch_(batch),
        input_(input),
        output_(output),
        kernel_(kernel),
        loss_(loss),
        stride_(input.stride()),
        mean_(stride_) {
    mean_.set(std::vector<float>(2 * stride_));
  }

  /// Trains on position t of the sentence [begin, end).
  void step(std::size_t begin, std::size_t t, std::size_t end, float alpha) {
    const auto reach = static_cast<std::size_t>(batch_.random.below(model_.window)) + 1;
    inputs_.clear();
    for (auto i = t - std::min(reach, t - begin); i < std::min(t + reach + 1, end); ++i) {
      if (i != t) inputs_.push_back(input_.row(batch_.token[i]));
    }
    choose_outputs(batch_.token[t]);
    const bool measure = t % measured_places == 0;
    if (measure) loss_.predictions += model_.cbow ? 1 : static_cast<double>(inputs_.size());
    if (model_.cbow) step_of_mean(alpha, measure);
    else loss_.sum += kernel_.step(inputs_, outputs_, labels_, alpha, measure);
  }

 private:
  void choose_outputs(std::uint32_t word) {
    const auto first = batch_.begin[word];
    const auto last = batch_.begin[word + 1];
    outputs_.clear();
    for (auto p = first; p < last; ++p) outputs_.push_back(output_.row(batch_.target[p]));
    labels_.assign(batch_.label.begin() + first, batch_.label.begin() + last);
    if (batch_.noise.empty()) return;
    for (std::size_t n = 0; n < model_.negatives; ++n) {
      const auto slot = batch_.noise[batch_.random.below(batch_.noise.size())];
      if (slot == batch_.target[first]) continue;
      outputs_.push_back(output_.row(slot));
      labels_.push_back(0);
    }
  }

  void step_of_mean(float alpha, bool measure) {
    float* const now = mean_.row(0);
    float* const change = mean_.row(1);
    std::fill_n(now, stride_, 0.0F);
    for (const float* row : inputs_) {
      for (std::size_t j = 0; j < stride_; ++j) now[j] += row[j];
    }
    const auto part = 1 / static_cast<float>(inputs_.size());
    for (std::size_t j = 0; j < stride_; ++j) change[j] = now[j] *= part;
    float* const mean[] = {now};
    loss_.sum += kernel_.step(mean, outputs_, labels_, alpha, measure);
    for (std::size_t j = 0; j < stride_; ++j) change[j] = now[j] - change[j];
    for (float* row : inputs_) {
      for (std::size_t j = 0; j < stride_; ++j) row[j] += change[j];
    }
  }

  const word2vec_model& model_;
  word2vec_batch& batch_;
  padded_rows& input_;
  padded_rows& output_;
  word2vec_kernel& kernel_;
  word2vec_loss& loss_;
  std::size_t stride_;
  padded_rows mean_;  // of the inputs, and its change
  std::vector<float*> inputs_;
  std::vector<float*> outputs_;
  std::vector<float> labels_;
};

}  // namespace

void train_batch(const word2vec_model& model, word2vec_batch& batch, padded_rows& input, padded_rows& output,
                 double first_alpha, double last_alpha, word2vec_kernel& kernel, word2vec_loss& loss) {
  trainer all(model, batch, input, output, kernel, loss);
  const auto tokens = static_cast<double>(batch.token.size());
  std::size_t begin = 0;
  for (const std::size_t end : batch.end) {
    for (std::size_t t = begin; t < end; ++t) {
      const double done = static_cast<double>(t) / tokens;
      all.step(begin, t, end, static_cast<float>(first_alpha + (last_alpha - first_alpha) * done));
    }
    begin = end;
  }
}

}  // namespace paracel::alg
