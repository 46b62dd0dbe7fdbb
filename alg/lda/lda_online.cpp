// SPDX-License-Identifier: BSD-3-Clause
#include "lda_online.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <paracel/collectives.hpp>

#include "lda_model.hpp"

namespace paracel::alg {

namespace {

// Numbers in a call, when iterating over all words: 16 MB.
constexpr std::size_t call_numbers = std::size_t{1} << 21U;
// Numbers that precede a document's words in a message: its position, its number, its length.
constexpr std::size_t head_size = 3;

}  // namespace

lda_online::lda_online(paralg& job, const lda_online_settings& settings, const lda_documents& documents,
                       std::uint64_t words, const lda_priors& priors, std::uint64_t seed)
    : job_(job),
      settings_(settings),
      priors_(priors),
      words_(words),
      seed_(seed),
      topics_(priors.alpha.size()),
      rows_(job, "lda_lambda", topics_),
      inference_(topics_, priors.alpha.front(), settings.document_steps, settings.document_tolerance),
      totals_(topics_) {
  distribute(documents);
}

void lda_online::keep(resumable_loop& loop) {
  loop.keep("steps", steps_).keep("generation", scale_.generation);
  loop.keep("scale", scale_.scale).keep("scale_before", scale_.before);
}

void lda_online::distribute(const lda_documents& documents) {
  auto comm = job_.get_comm();
  const std::uint64_t workers = job_.get_worker_size();
  std::uint64_t first = 0;
  const auto counts = comm.allgather(static_cast<std::int64_t>(documents.size()));
  for (std::size_t w = 0; w < counts.size(); ++w) {
    if (w < job_.get_worker_id()) first += static_cast<std::uint64_t>(counts[w]);
    documents_total_ += static_cast<std::uint64_t>(counts[w]);
  }
  const auto size = std::min(settings_.batch_size, documents_total_);
  batches_.resize((documents_total_ + size - 1) / size);
  for (std::size_t b = 0; b < batches_.size(); ++b)
    batches_[b].documents_of_all = std::min(size, documents_total_ - b * size);

  std::vector<std::vector<std::uint64_t>> heads(workers);
  std::vector<std::vector<std::uint32_t>> words(workers);
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const auto position = first + d;
    const auto of_all = batches_[position / size].documents_of_all;
    // Neighbours stay together, because they have words in common.
    const auto to = position % size * workers / of_all;
    const auto text = documents.of(d);
    heads[to].insert(heads[to].end(), {position, documents.number[d], text.size()});
    words[to].insert(words[to].end(), text.begin(), text.end());
  }
  std::vector<std::vector<std::uint64_t>> got_heads;
  std::vector<std::vector<std::uint32_t>> got_words;
  comm.alltoall(heads, got_heads);
  comm.alltoall(words, got_words);
  // Positions ascend, within a sender and from sender to sender.
  std::vector<std::uint64_t> all_heads;
  std::vector<std::uint32_t> all_words;
  for (std::size_t w = 0; w < workers; ++w) {
    all_heads.insert(all_heads.end(), got_heads[w].begin(), got_heads[w].end());
    all_words.insert(all_words.end(), got_words[w].begin(), got_words[w].end());
  }
  std::span<const std::uint64_t> head(all_heads);
  std::span<const std::uint32_t> text(all_words);
  while (!head.empty()) {
    const auto batch = head.front() / size;
    std::size_t end = 0;
    std::size_t tokens = 0;
    for (; end < head.size() && head[end] / size == batch; end += head_size) tokens += head[end + 2];
    add_documents(batches_[batch], head.first(end), text.first(tokens));
    head = head.subspan(end);
    text = text.subspan(tokens);
  }
}

void lda_online::add_documents(batch_part& to, std::span<const std::uint64_t> heads,
                               std::span<const std::uint32_t> words) {
  to.words.assign(words.begin(), words.end());
  std::ranges::sort(to.words);
  to.words.erase(std::unique(to.words.begin(), to.words.end()), to.words.end());
  auto& bags = to.documents;
  std::vector<std::uint32_t> text;
  for (std::size_t h = 0; h < heads.size(); h += head_size) {
    const auto length = heads[h + 2];
    text.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(length));
    words = words.subspan(length);
    std::ranges::sort(text);
    for (std::size_t i = 0; i < text.size();) {
      const auto same = static_cast<std::size_t>(std::find_if(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(),
                                                              [&](auto word) { return word != text[i]; }) -
                                                 text.begin());
      bags.word.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(to.words, text[i]) - to.words.begin()));
      bags.count.push_back(static_cast<double>(same - i));
      i = same;
    }
    bags.begin.push_back(bags.word.size());
    bags.number.push_back(heads[h + 1]);
  }
}

template <class F>
void lda_online::for_own_words(F&& f) const {
  const auto own = owned_range_of(words_, job_.get_worker_size(), job_.get_worker_id());
  const auto step = std::max<std::size_t>(1, call_numbers / topics_);
  std::vector<std::uint64_t> piece;
  for (auto first = own.begin; first < own.end; first += step) {
    piece.resize(std::min(step, own.end - first));
    std::iota(piece.begin(), piece.end(), first);
    f(std::span<const std::uint64_t>(piece));
  }
}

void lda_online::start(const std::function<bool(std::uint64_t, std::span<double>)>& known) {
  std::vector<double> sums(topics_);
  std::vector<double> rows;
  for_own_words([&](std::span<const std::uint64_t> words) {
    rows.resize(words.size() * topics_);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto row = std::span(rows).subspan(i * topics_, topics_);
      if (!known || !known(words[i], row)) {
        start_row(seed_, words[i], row);
        for (auto& v : row) v -= priors_.beta;
      }
      for (std::size_t k = 0; k < topics_; ++k) sums[k] += row[k];
    }
    rows_.push(words, rows);  // generation 0
  });
  const std::uint64_t totals[] = {totals_row(0)};
  rows_.update(totals, sums);
}

void lda_online::pull_rows(std::span<const std::uint64_t> words, std::span<double> rows, std::span<double> totals) {
  const bool two = scale_.before > 0;
  ids_.clear();
  for (const auto g : {scale_.generation, scale_.generation + 1}) {  // the next one shares the previous one's place
    if (g != scale_.generation && !two) continue;
    for (const auto w : words) ids_.push_back(row_of(w, g));
    if (!totals.empty()) ids_.push_back(totals_row(g));
  }
  pulled_.resize(ids_.size() * topics_);
  rows_.pull(ids_, pulled_);
  const auto numbers = rows.size() + totals.size();
  const double* const last = pulled_.data() + numbers;
  const auto value = [&](std::size_t i) { return scale_.scale * pulled_[i] + (two ? scale_.before * last[i] : 0.0); };
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = value(i);
  for (std::size_t k = 0; k < totals.size(); ++k) totals[k] = value(rows.size() + k);
}

std::vector<double> lda_online::totals() {
  std::vector<double> found(topics_);
  pull_rows({}, {}, found);
  return found;
}

void lda_online::use_topics(const batch_part& part) {
  lambda_.resize(part.words.size() * topics_);
  pull_rows(part.words, lambda_, totals_);
  for (auto& v : lambda_) v += priors_.beta;
  for (auto& v : totals_) v += priors_.words * priors_.beta;
  inference_.set_topics(lambda_, totals_);
}

void lda_online::train(std::size_t batch) {
  const auto& part = batches_[batch];
  sums_.assign(part.words.size() * topics_, 0.0);
  if (!part.words.empty()) {
    use_topics(part);
    for (std::size_t d = 0; d < part.documents.size(); ++d) {
      inference_.infer(part.documents, d);
      inference_.add_counts(sums_);
    }
    inference_.finish(sums_);
  }

  ++steps_;
  const double rho = std::pow(settings_.offset + static_cast<double>(steps_), -settings_.decay);
  if (scale_.decay(1 - rho) && scale_.generation > 1) {
    // Rows of two generations ago, whose place this one takes. They are no longer read.
    for_own_words([&](std::span<const std::uint64_t> words) {
      ids_.clear();
      for (const auto w : words) ids_.push_back(row_of(w, scale_.generation));
      (void)rows_.remove(ids_);
    });
    if (job_.get_worker_id() == 0) {
      const std::uint64_t totals[] = {totals_row(scale_.generation)};
      (void)rows_.remove(totals);
    }
  }
  if (part.words.empty()) return;
  const double weight =
      rho * static_cast<double>(documents_total_) / static_cast<double>(part.documents_of_all) / scale_.scale;
  std::vector<double> column(topics_);
  for (std::size_t i = 0; i < sums_.size(); ++i) column[i % topics_] += sums_[i] *= weight;
  ids_.clear();
  for (const auto w : part.words) ids_.push_back(row_of(w, scale_.generation));
  ids_.push_back(totals_row(scale_.generation));
  sums_.insert(sums_.end(), column.begin(), column.end());
  rows_.update(ids_, sums_);
}

double lda_online::bound(std::vector<double>* shares) {
  double value = 0;
  for (const auto& part : batches_) {
    if (part.documents.size() == 0) continue;
    use_topics(part);
    for (std::size_t d = 0; d < part.documents.size(); ++d) {
      inference_.infer(part.documents, d);
      value += inference_.bound();
      if (shares == nullptr) continue;
      const auto gamma = inference_.gamma();
      const double sum = std::accumulate(gamma.begin(), gamma.end(), 0.0);
      for (const auto g : gamma) shares->push_back(g / sum);
    }
  }
  totals_ = totals();
  for (auto& v : totals_) v += priors_.words * priors_.beta;
  for_own_words([&](std::span<const std::uint64_t> words) {
    lambda_.resize(words.size() * topics_);
    pull_rows(words, lambda_, {});
    for (auto& v : lambda_) v += priors_.beta;
    value += topics_bound(lambda_, totals_, priors_.beta);
  });
  job_.get_comm().allreduce(value);
  for (const auto t : totals_) value += log_gamma(priors_.words * priors_.beta) - log_gamma(t);
  return value;
}

std::vector<std::uint64_t> lda_online::numbers() const {
  std::vector<std::uint64_t> all;
  for (const auto& part : batches_) all.insert(all.end(), part.documents.number.begin(), part.documents.number.end());
  return all;
}

}  // namespace paracel::alg
