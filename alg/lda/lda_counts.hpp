// SPDX-License-Identifier: BSD-3-Clause
//
// The counts of a model in the servers: how many tokens of each word, and how many tokens in all, are in each topic.
// They are rows of two tables, to which deltas are added; or, with a plug-in, values under Paracel 0.3's keys, to which
// its functions apply the deltas:
//
//     <word>          | count in topic 0 | count in topic 1 | ...     gLDA_word_update
//     sum_topic_<k>   | count                                         gLDA_sum_topic_update
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

namespace paracel::alg {

/// Thread-safety: none. Lifetime: the paralg must outlive it. Consistency and errors: as those of its tables or keys.
class lda_counts {
 public:
  /// `plugin`: a file, or empty for tables.
  lda_counts(paralg& job, std::size_t topics, std::string plugin);

  /// Rows of K counts, in the order of `words`; zeros for a word that was never counted. Cost: a request to each shard.
  void pull(std::span<const std::uint64_t> words, std::span<std::int32_t> rows);
  void update(std::span<const std::uint64_t> words, std::span<const std::int32_t> deltas);
  void pull_totals(std::span<std::int64_t> totals);
  /// Throws: type_error, with a plug-in, for a delta of 2^31 or more: Paracel's function takes int.
  void update_totals(std::span<const std::int64_t> deltas);

 private:
  paralg& job_;
  std::size_t topics_;
  std::string plugin_;
  std::vector<std::string> total_keys_;
  std::optional<table<std::int32_t>> words_;
  std::optional<table<std::int64_t>> totals_;
};

}  // namespace paracel::alg
