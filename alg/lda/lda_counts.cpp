// SPDX-License-Identifier: BSD-3-Clause
#include "lda_counts.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::alg {

namespace {

constexpr std::uint64_t only_row[] = {0};

std::vector<std::string> keys_of(std::span<const std::uint64_t> words) {
  std::vector<std::string> keys;
  keys.reserve(words.size());
  for (const auto w : words) keys.push_back(std::to_string(w));
  return keys;
}

}  // namespace

lda_counts::lda_counts(paralg& job, std::size_t topics, std::string plugin)
    : job_(job), topics_(topics), plugin_(std::move(plugin)) {
  if (plugin_.empty()) {
    words_.emplace(job, "lda_words", topics);
    totals_.emplace(job, "lda_topics", topics);
  }
  for (std::size_t k = 0; k < topics; ++k) total_keys_.push_back("sum_topic_" + std::to_string(k));
}

void lda_counts::pull(std::span<const std::uint64_t> words, std::span<std::int32_t> rows) {
  if (words_) return words_->pull(words, rows);
  const auto keys = keys_of(words);
  dict_type<std::string, std::vector<int>> found;
  job_.paracel_read_multi(keys, found);
  std::ranges::fill(rows, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = found.find(keys[i]);
    if (row == found.end()) continue;
    if (row->second.size() != topics_)
      throw plugin_error("gLDA_word_update: found " + std::to_string(row->second.size()) + " counts of a word, want " +
                         std::to_string(topics_));
    std::ranges::copy(row->second, rows.begin() + static_cast<std::ptrdiff_t>(i * topics_));
  }
}

void lda_counts::update(std::span<const std::uint64_t> words, std::span<const std::int32_t> deltas) {
  if (words_) return words_->update(words, deltas);
  std::vector<std::vector<int>> rows;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto row = deltas.subspan(i * topics_, topics_);
    rows.emplace_back(row.begin(), row.end());
  }
  job_.paracel_update_multi(keys_of(words), rows, {plugin_, "gLDA_word_update"});
}

void lda_counts::pull_totals(std::span<std::int64_t> totals) {
  if (totals_) return totals_->pull(only_row, totals);
  std::ranges::copy(job_.paracel_read_multi<int>(total_keys_), totals.begin());
}

void lda_counts::update_totals(std::span<const std::int64_t> deltas) {
  if (totals_) return totals_->update(only_row, deltas);
  std::vector<int> numbers;
  for (const auto d : deltas) {
    if (!std::in_range<int>(d))
      throw type_error("gLDA_sum_topic_update takes int, " + std::to_string(d) + " does not fit");
    numbers.push_back(static_cast<int>(d));
  }
  job_.paracel_update_multi(total_keys_, numbers, {plugin_, "gLDA_sum_topic_update"});
}

}  // namespace paracel::alg
