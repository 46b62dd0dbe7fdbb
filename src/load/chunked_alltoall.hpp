// SPDX-License-Identifier: BSD-3-Clause
//
// All-to-all of data that is produced when sent and consumed when received, in rounds of bounded size: no worker
// buffers more than a round. For blocks that exist as a whole see paracel/exchange.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "paracel/comm.hpp"
#include "paracel/detail/bytes.hpp"
#include "paracel/error.hpp"

namespace paracel {

/// Bytes that a worker sends, and at most receives, per round. The communicator and its sockets hold up to five copies
/// of them: with 8 MB these were a quarter of the peak memory of loading 55 MB of edges per worker.
inline constexpr std::size_t round_bytes = std::size_t{2} << 20;

/// One round: `blocks[w]` goes to worker w, and `take(w, bytes)` gets what each w sent, in rank order. The blocks are
/// empty afterwards. `more`: this worker will have something to send in another round. Returns: whether any worker
/// will; all of them then call it again. Blocks: a collective. Cost: a byte per block.
template <class Take>
[[nodiscard]] bool exchange_round(Comm& comm, std::vector<byte_vector>& blocks, bool more, Take&& take) {
  for (auto& b : blocks) b.push_back(std::byte{more});
  const auto got = comm.alltoall_bytes(blocks);
  for (auto& b : blocks) b.clear();
  bool again = false;
  for (std::size_t w = 0; w < got.size(); ++w) {
    if (got[w].empty()) throw protocol_error("worker " + std::to_string(w) + " sent a block without its last byte");
    again = again || got[w].back() != std::byte{0};
    take(w, std::span(got[w]).first(got[w].size() - 1));
  }
  return again;
}

/// Sends `items[w]` items of `item_bytes` each to worker w.
/// fill(w, n, out): appends the next n items for w; take(w, bytes): the next ones from w, whole items.
/// A worker's items for itself are not sent. Items from one worker arrive in the order in which it sent them.
/// Blocks: a collective. Cost: at most max(items[w]) * item_bytes * workers / round_bytes rounds, and at least one.
template <class Fill, class Take>
void exchange_items(Comm& comm, const std::vector<std::uint64_t>& items, std::size_t item_bytes, Fill&& fill,
                    Take&& take) {
  const auto size = comm.get_size();
  const auto self = comm.get_rank();
  const std::uint64_t per_round = std::max<std::uint64_t>(1, round_bytes / size / item_bytes);
  std::vector<byte_vector> blocks(size);
  auto left = items;
  const auto fill_one = [&](std::size_t w) {
    const auto n = std::min(left[w], per_round);
    if (n > 0) fill(w, n, blocks[w]);
    left[w] -= n;
  };
  const auto keep_own = [&] {
    fill_one(self);
    if (!blocks[self].empty()) take(self, std::span<const std::byte>(blocks[self]));
    blocks[self].clear();
  };
  const auto take_others = [&](std::size_t w, std::span<const std::byte> bytes) {
    if (!bytes.empty()) take(w, bytes);
  };
  for (bool again = size > 1; again;) {
    keep_own();  // in step with the others', so that sent items can be freed
    bool more = false;
    for (std::size_t w = 0; w < size; ++w) {
      if (w == self) continue;
      fill_one(w);
      more = more || left[w] != 0;
    }
    again = exchange_round(comm, blocks, more, take_others);
  }
  while (left[self] > 0) keep_own();
}

/// An all-gather: the concatenation in rank order, on every worker; in rounds.
inline std::vector<std::string> gather_blocks(Comm& comm, std::string_view mine) {
  std::vector<std::string> all(comm.get_size());
  const std::size_t piece = std::max<std::size_t>(1, round_bytes / comm.get_size());
  auto rounds = static_cast<std::int64_t>((mine.size() + piece - 1) / piece);
  comm.allreduce(rounds, reduce_op::max);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const auto at = std::min(mine.size(), static_cast<std::size_t>(round) * piece);
    const auto got = comm.allgather(std::string(mine.substr(at, piece)));
    for (std::size_t w = 0; w < got.size(); ++w) all[w] += got[w];
  }
  return all;
}

}  // namespace paracel
