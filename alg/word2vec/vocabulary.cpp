// SPDX-License-Identifier: BSD-3-Clause
#include "vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <paracel/error.hpp>
#include <paracel/interner.hpp>
#include <paracel/samples.hpp>

#include "alg/word_count/exchange_words.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint32_t rare = interner<std::string>::none;

/// The vocabulary, from the counts of each worker's words and those of `known`.
vocabulary count_words(Comm& comm, const interner<std::string>& seen, std::span<const std::uint64_t> counts,
                       std::uint64_t min_count, const vocabulary& known) {
  interner<std::string> earlier;
  for (const auto& w : known.word) earlier.intern(w);
  word_table table;
  for (std::size_t i = 0; i < counts.size(); ++i) table.add(seen[i], seen[i].data() + seen[i].size(), counts[i]);
  exchange_words(comm, table);
  byte_vector packed;
  table.for_each([&](std::string_view word, std::uint64_t count, std::uint32_t) {
    if (count >= min_count || earlier.find(word) != rare) pack_word(packed, word, count);
  });
  const auto all = comm.alltoall_bytes(std::vector<byte_vector>(comm.get_size(), packed));
  std::vector<counted_word> sorted;
  for (std::size_t w = 0; w < known.size(); ++w) sorted.push_back({known.word[w], known.count[w]});
  for (const auto& block : all) {
    unpack_words(block, [&](std::string_view word, std::uint64_t count) {
      const auto at = earlier.find(word);
      if (at == rare) sorted.push_back({word, count});
      else sorted[at].count += count;
    });
  }
  std::sort(sorted.begin(), sorted.end(), before);
  vocabulary words;
  words.before = known.total;
  for (const auto& w : sorted) {
    words.word.emplace_back(w.word);
    words.count.push_back(w.count);
    words.total += w.count;
  }
  return words;
}

}  // namespace

std::pair<std::size_t, std::size_t> token_text::part(std::uint64_t part, std::uint64_t parts) const {
  __extension__ using wide = unsigned __int128;
  const auto at = [&](std::uint64_t p) {
    const auto first = static_cast<std::uint64_t>(static_cast<wide>(token.size()) * p / parts);
    return static_cast<std::size_t>(std::lower_bound(begin.begin(), begin.end(), first) - begin.begin());
  };
  return {at(part), at(part + 1)};
}

token_text load_tokens(Comm comm, const std::vector<std::string>& files, const word_bytes& bytes,
                       std::uint64_t min_count, vocabulary& words, const vocabulary* known) {
  interner<std::string> seen;
  std::vector<std::uint64_t> counts;
  std::vector<std::uint32_t> raw;   // numbers in `seen`
  std::vector<std::uint64_t> ends;  // of lines, in `raw`
  visit_text(comm, files, [&](std::string_view text, const text_failure&) {
    while (!text.empty()) {
      const auto line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      bytes.for_each(line, [&](std::string_view word) {
        const auto number = seen.intern(word);
        if (number == counts.size()) counts.push_back(0);
        ++counts[number];
        raw.push_back(number);
      });
      ends.push_back(raw.size());
    }
  });
  words = count_words(comm, seen, counts, min_count, known == nullptr ? vocabulary() : *known);
  if (words.tokens() == 0)
    throw data_error(files.front() + ": found no word that occurs at least " + std::to_string(min_count) +
                     " times (min_count)");

  std::vector<std::uint32_t> number_of(seen.size(), rare);
  for (std::size_t w = 0; w < words.size(); ++w) {
    const auto local = seen.find(words.word[w]);
    if (local != rare) number_of[local] = static_cast<std::uint32_t>(w);
  }
  token_text text;
  auto& token = raw;  // in place
  std::size_t to = 0;
  std::size_t from = 0;
  for (const auto end : ends) {
    for (; from < end; ++from) {
      if (number_of[raw[from]] == rare) continue;
      if (to - text.begin.back() == token_text::longest_sentence) text.begin.push_back(to);
      token[to++] = number_of[raw[from]];
    }
    if (to > text.begin.back()) text.begin.push_back(to);
  }
  token.resize(to);
  text.token = std::move(token);
  return text;
}

std::vector<float> keep_probabilities(const vocabulary& words, double sample) {
  std::vector<float> keep(words.size(), 1.0F);
  if (sample == 0) return keep;
  const double unit = sample * static_cast<double>(words.total);
  for (std::size_t w = 0; w < keep.size(); ++w) {
    const auto n = static_cast<double>(words.count[w]);
    keep[w] = static_cast<float>(std::min(1.0, (std::sqrt(n / unit) + 1) * unit / n));
  }
  return keep;
}

noise_distribution::noise_distribution(const vocabulary& words) {
  double sum = 0;
  for (const auto n : words.count) below_.push_back(sum += std::pow(static_cast<double>(n), 0.75));
}

std::uint32_t noise_distribution::operator()(counter_random& random) const {
  const auto at = std::upper_bound(below_.begin(), below_.end() - 1, random.uniform() * below_.back());
  return static_cast<std::uint32_t>(at - below_.begin());
}

double noise_distribution::probability(std::uint32_t word) const {
  return (below_[word] - (word == 0 ? 0 : below_[word - 1])) / below_.back();
}

/// Leaves are taken from the least count on, and inner nodes in the order in which they are made, which is that of
/// their counts; where a leaf and an inner node have the same count, the leaf is first.
huffman_tree::huffman_tree(std::span<const std::uint64_t> counts) {
  const std::size_t n = counts.size();
  const std::size_t inner = n < 2 ? 0 : n - 1;
  std::vector<std::uint64_t> sums(inner);
  std::vector<std::uint32_t> parent(n + inner);  // its number in `sums`
  std::vector<std::uint8_t> side(n + inner);
  std::size_t leaf = n;  // those before it are left
  std::size_t next = 0;  // inner node
  const auto take = [&](std::size_t made) {
    if (leaf > 0 && (next == made || counts[leaf - 1] <= sums[next])) return --leaf;
    return n + next++;
  };
  for (std::size_t made = 0; made < inner; ++made) {
    const auto less = take(made);
    const auto more = take(made);
    const auto count_of = [&](std::size_t i) { return i < n ? counts[i] : sums[i - n]; };
    sums[made] = count_of(less) + count_of(more);
    parent[less] = parent[more] = static_cast<std::uint32_t>(made);
    side[less] = 1;
  }
  std::vector<std::uint32_t> path;
  std::vector<std::uint8_t> sides;
  for (std::size_t w = 0; w < n; ++w) {
    path.clear();
    sides.clear();
    for (std::size_t at = w; inner > 0 && at != n + inner - 1;) {
      sides.push_back(side[at]);
      path.push_back(static_cast<std::uint32_t>(inner - 1 - parent[at]));  // the last one made is the root
      at = n + parent[at];
    }
    node.insert(node.end(), path.rbegin(), path.rend());
    label.insert(label.end(), sides.rbegin(), sides.rend());
    begin.push_back(node.size());
  }
}

}  // namespace paracel::alg
