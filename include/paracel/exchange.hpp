// SPDX-License-Identifier: BSD-3-Clause
//
// An all-to-all of blocks of any size, in messages of bounded size: what the scheduler passes on at once stays small however
// much there is to send.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>

namespace paracel {

/// A worker sends no more than this in one round of an exchange. Below the limit of a message (1 GiB by default) by so much
/// that the blocks' own lengths do not matter, and large enough that a round costs its bytes and not its round trip.
inline constexpr std::size_t exchange_round_bytes = std::size_t{64} << 20U;

/// Bytes at the beginning of each block that belong to `exchange_blocks`; the caller leaves room for them.
inline constexpr std::size_t exchange_room = sizeof(std::uint64_t);

/// `blocks[r]` goes to rank r; returns what each rank sent here, in rank order. The first `exchange_room` bytes of each
/// block are overwritten, what comes has them too. The own block does not travel. Blocks are moved out of.
/// Every worker must call it. Cost: as many all-to-alls as the worker with most to send needs.
inline std::vector<byte_vector> exchange_blocks(Comm& comm, std::vector<byte_vector>& blocks,
                                                std::size_t round_bytes = exchange_round_bytes) {
  const std::size_t size = comm.get_size();
  const std::size_t rank = comm.get_rank();
  for (auto& b : blocks) b.resize(std::max(b.size(), exchange_room));
  auto mine = std::move(blocks[rank]);
  blocks[rank].clear();
  std::vector<byte_vector> got(size);
  if (size > 1) {
    // Each sender says in its first piece how many rounds it needs; all take the greatest.
    const std::size_t piece = std::max(round_bytes / (size - 1), exchange_room);
    std::size_t longest = 0;
    for (const auto& b : blocks) longest = std::max(longest, b.size());
    std::uint64_t rounds = std::max<std::size_t>((longest + piece - 1) / piece, 1);
    for (auto& b : blocks)
      if (!b.empty()) std::memcpy(b.data(), &rounds, sizeof rounds);
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
      std::uint64_t wanted = 0;
      if (w == rank) continue;
      if (got[w].size() < exchange_room) throw protocol_error("an exchange got a block that is too short");
      std::memcpy(&wanted, got[w].data(), sizeof wanted);
      rounds = std::max(rounds, wanted);
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

/// Appends to and reads from blocks, without alignment.
template <class T>
void put_bytes(byte_vector& block, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto at = block.size();
  block.resize(at + sizeof(T));
  std::memcpy(block.data() + at, &value, sizeof(T));
}
template <class T>
void put_bytes(byte_vector& block, const T* values, std::size_t n) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto at = block.size();
  block.resize(at + n * sizeof(T));
  if (n > 0) std::memcpy(block.data() + at, values, n * sizeof(T));
}

/// Reads a block from its beginning. Throws: protocol_error at its end.
class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> bytes, std::size_t skip = 0) : rest_(bytes) { (void)take(skip); }

  /// The next n bytes. Lifetime: that of the block.
  const std::byte* take(std::size_t n) {
    if (n > rest_.size()) throw protocol_error("a block of an exchange ends early");
    const auto* at = rest_.data();
    rest_ = rest_.subspan(n);
    return at;
  }
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  /// n values, into `out`.
  template <class T>
  void get(std::vector<T>& out, std::size_t n) {
    if (n > rest_.size() / sizeof(T)) throw protocol_error("a block of an exchange ends early");
    out.resize(n);
    if (n > 0) std::memcpy(out.data(), take(n * sizeof(T)), n * sizeof(T));
  }
  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace paracel
