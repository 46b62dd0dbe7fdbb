// SPDX-License-Identifier: BSD-3-Clause
//
// Counts of words over all workers: each word is summed by the worker that its hash selects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/comm.hpp>

#include "word_table.hpp"

namespace paracel::alg {

/// The worker that sums the words with this hash (word_table::for_each).
inline std::size_t owner_of_word(std::uint32_t hash, std::size_t workers) {
  return static_cast<std::size_t>((std::uint64_t{hash} * workers) >> 32U);
}

/// Replaces the counts of this worker's text by those, over all workers, of the words that it owns. A collective.
/// Cost: each distinct word is sent once, with 12 bytes, in rounds of 1 MB a worker; own words stay where they are.
inline void exchange_words(Comm comm, word_table& words) {
  // Bytes that a worker sends to all others together in one round. Bounds how much is in memory twice.
  constexpr std::size_t round_bytes = std::size_t{1} << 20U;
  const auto workers = comm.get_size();
  if (workers == 1) return;
  const auto rank = comm.get_rank();
  // Most parts have a single owner: this worker's stay where they are, those of others are freed once sent.
  std::vector<word_part> left;
  for (std::size_t p = 0; p < word_table::parts; ++p) {
    const auto [least, most] = word_table::hashes_of(p);
    if (owner_of_word(least, workers) != rank || owner_of_word(most, workers) != rank)
      left.push_back(words.take_part(p));
  }
  std::size_t at = 0;  // position in the last of them
  for (std::int64_t more = 1; more != 0;) {
    std::vector<byte_vector> blocks(workers);
    std::size_t bytes = 0;
    while (!left.empty() && bytes < round_bytes) {
      left.back().visit(at, [&](std::string_view word, std::uint64_t count, std::uint32_t hash) {
        const auto to = owner_of_word(hash, workers);
        if (to == rank) {
          words.add(word, word.data() + word.size(), count);
        } else {
          pack_word(blocks[to], word, count);
          bytes += 12 + word.size();
        }
        return bytes < round_bytes;
      });
      if (bytes >= round_bytes) break;
      left.pop_back();
      at = 0;
    }
    for (const auto& block : comm.alltoall_bytes(blocks)) {
      const auto* const end = reinterpret_cast<const char*>(block.data()) + block.size();
      unpack_words(block, [&](std::string_view word, std::uint64_t count) { words.add(word, end, count); });
    }
    more = left.empty() ? 0 : 1;
    comm.allreduce(more, reduce_op::max);
  }
}

}  // namespace paracel::alg
