// SPDX-License-Identifier: BSD-3-Clause
//
// An all-to-all of blocks of any size, in messages of bounded size: what the scheduler relays at once stays small
// however much there is to send.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/bytes.hpp>

namespace paracel {

/// The most a worker sends in one round of an exchange. Small enough below the message limit (1 GiB by default) that
/// the blocks' length fields do not matter, and large enough that a round is bound by its bytes and not by its round
/// trip.
inline constexpr std::size_t exchange_round_bytes = std::size_t{64} << 20U;

/// Bytes at the beginning of each block reserved for `exchange_blocks`; the caller leaves room for them.
inline constexpr std::size_t exchange_room = sizeof(std::uint64_t);

/// `blocks[r]` goes to rank r; returns what each rank sent here, in rank order. The first `exchange_room` bytes of each
/// block are overwritten, and received blocks have them too. The own block is not sent. Blocks are moved from.
/// Every worker must call it. Cost: as many all-to-alls as the worker with the most to send needs.
inline std::vector<byte_vector> exchange_blocks(Comm& comm, std::vector<byte_vector>& blocks,
                                                std::size_t most_bytes = exchange_round_bytes) {
  const std::size_t size = comm.get_size();
  const std::size_t rank = comm.get_rank();
  for (auto& b : blocks) b.resize(std::max(b.size(), exchange_room));
  auto mine = std::move(blocks[rank]);
  blocks[rank].clear();
  std::vector<byte_vector> got(size);
  if (size > 1) {
    // Each sender says in its first piece how many rounds it needs; the maximum decides.
    const std::size_t piece = std::max(most_bytes / (size - 1), exchange_room);
    std::size_t longest = 0;
    for (const auto& b : blocks) longest = std::max(longest, b.size());
    std::uint64_t rounds = std::max<std::size_t>((longest + piece - 1) / piece, 1);
    for (auto& b : blocks)
      if (!b.empty()) store_fields(b.data(), rounds);
    if (rounds == 1) {
      got = comm.alltoall_bytes(blocks);
    } else {
      std::vector<byte_vector> pieces(size);
      for (std::size_t w = 0; w < size; ++w) {
        const auto n = static_cast<std::ptrdiff_t>(std::min(piece, blocks[w].size()));
        pieces[w].assign(blocks[w].begin(), blocks[w].begin() + n);
      }
      got = comm.alltoall_bytes(pieces);
    }
    for (std::size_t w = 0; w < size; ++w) {
      if (w != rank) rounds = std::max(rounds, byte_reader(got[w]).get<std::uint64_t>());
    }
    for (std::uint64_t k = 1; k < rounds; ++k) {
      std::vector<byte_vector> pieces(size);
      for (std::size_t w = 0; w < size; ++w) {
        const auto from = std::min<std::size_t>(k * piece, blocks[w].size());
        const auto to = std::min<std::size_t>(from + piece, blocks[w].size());
        pieces[w].assign(blocks[w].begin() + static_cast<std::ptrdiff_t>(from),
                         blocks[w].begin() + static_cast<std::ptrdiff_t>(to));
      }
      const auto more = comm.alltoall_bytes(pieces);
      for (std::size_t w = 0; w < size; ++w) got[w].insert(got[w].end(), more[w].begin(), more[w].end());
    }
  }
  got[rank] = std::move(mine);
  blocks.clear();
  return got;
}

}  // namespace paracel
