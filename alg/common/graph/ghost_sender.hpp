// SPDX-License-Identifier: BSD-3-Clause
//
// Sending to the owners of ghosts: a set of ghosts, with or without a value for each, in one all-to-all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/exchange.hpp>

namespace paracel::alg {

/// A set of vertices, as bits.
class vertex_bits {
 public:
  static constexpr std::size_t width = 64;
  explicit vertex_bits(std::size_t n = 0) : words_((n + width - 1) / width) {}
  [[nodiscard]] bool has(std::size_t v) const { return (words_[v / width] >> (v % width) & 1U) != 0; }
  void add(std::size_t v) { words_[v / width] |= std::uint64_t{1} << (v % width); }
  void clear() { words_.assign(words_.size(), 0); }
  void swap(vertex_bits& other) noexcept { words_.swap(other.words_); }
  [[nodiscard]] std::uint64_t word(std::size_t w) const { return words_[w]; }
  /// Calls f(v) for the members in [first, last), ascending.
  template <class F>
  void each(std::size_t first, std::size_t last, F&& f) const {
    each_of(first, last, false, f);
  }
  /// The same for those that are not members.
  template <class F>
  void each_other(std::size_t first, std::size_t last, F&& f) const {
    each_of(first, last, true, f);
  }

 private:
  template <class F>
  void each_of(std::size_t first, std::size_t last, bool others, F&& f) const {
    for (auto w = first / width; w * width < last; ++w) {
      auto bits = others ? ~words_[w] : words_[w];
      if (w == first / width) bits &= ~std::uint64_t{0} << (first % width);
      if (last - w * width < width) bits &= (std::uint64_t{1} << (last - w * width)) - 1;
      for (; bits != 0; bits &= bits - 1) f(w * width + static_cast<std::size_t>(__builtin_ctzll(bits)));
    }
  }
  std::vector<std::uint64_t> words_;
};

/// No value is sent with a ghost.
struct no_value {};

/// Value: trivially copyable, or no_value. Thread-safety: none. Lifetime: graph and borders must outlive it.
///
/// A block from one worker to another; numbers are 64 bits unless noted:
///
///     | room of exchange_blocks | head | n | bits (0 or 1) | which | n values |
///
/// `which` is n indices (4 bytes each) into the sender's ghosts of the receiver's vertices, or a bitmap of these ghosts
/// if that is smaller.
template <class Value>
class ghost_sender {
 public:
  static constexpr bool with_value = !std::is_same_v<Value, no_value>;

  ghost_sender(Comm comm, const distributed_graph& graph, const halo& borders)
      : comm_(std::move(comm)), graph_(graph), borders_(borders), marked_(graph.ghosts.size()) {}

  /// Includes this ghost in the next `send`. Returns: false if it was marked already.
  bool mark(std::size_t ghost) {
    if (marked_.has(ghost)) return false;
    marked_.add(ghost);
    ++marks_;
    return true;
  }
  [[nodiscard]] std::size_t marks() const noexcept { return marks_; }

  /// Sends the marked ghosts with value_of(ghost), and calls accept(own vertex, value) for those received, in rank
  /// order. Returns: the heads of all workers. A collective. Head: trivially copyable.
  /// Cost: one all-to-all with at most 4 bytes and the value for each marked ghost.
  template <class Head, class Get, class Accept>
  std::vector<Head> send(const Head& head, Get&& value_of, Accept&& accept) {
    const auto size = comm_.get_size();
    std::vector<Head> heads(size, head);
    if (size == 1) return heads;
    std::vector<byte_vector> blocks(size);
    std::vector<std::uint32_t> which;
    std::vector<Value> values;
    for (std::size_t w = 0; w < size; ++w) {
      const auto first = borders_.ghost_first(w), last = borders_.ghost_first(w + 1);
      which.clear();
      values.clear();
      if (marks_ > 0)
        marked_.each(first, last, [&](std::size_t g) {
          which.push_back(static_cast<std::uint32_t>(g - first));
          if constexpr (with_value) values.push_back(value_of(g));
        });
      pack(blocks[w], head, which, values, last - first);
    }
    if (marks_ > 0) marked_.clear();
    marks_ = 0;
    const auto got = exchange_blocks(comm_, blocks);
    for (std::size_t w = 0; w < size; ++w) {
      if (w == graph_.rank) continue;
      byte_reader in(got[w], exchange_room);
      heads[w] = in.template get<Head>();
      accept_block(in, borders_.shared_with(w), accept);
    }
    return heads;
  }

 private:
  static void pack(byte_vector& to, const auto& head, const std::vector<std::uint32_t>& which,
                   const std::vector<Value>& values, std::size_t ghosts) {
    put_bytes(to, std::uint64_t{0});
    put_bytes(to, head);
    put_bytes(to, static_cast<std::uint64_t>(which.size()));
    const auto bytes = (ghosts + 7) / 8;
    const bool bits = bytes < which.size() * sizeof(std::uint32_t);
    put_bytes(to, std::uint64_t{bits ? 1U : 0U});
    if (bits) {
      const auto start = to.size();
      to.resize(start + bytes);
      for (const auto k : which) to[start + k / 8] |= static_cast<std::byte>(1U << (k % 8));
    } else {
      put_bytes(to, which.data(), which.size());
    }
    if constexpr (with_value) put_bytes(to, values.data(), values.size());
  }

  template <class Accept>
  void accept_block(byte_reader& in, std::span<const std::uint32_t> shared, Accept& accept) {
    const auto n = in.get<std::uint64_t>();
    const bool bits = in.get<std::uint64_t>() != 0;
    const auto* const which = in.take(bits ? (shared.size() + 7) / 8 : n * sizeof(std::uint32_t));
    const std::byte* values = nullptr;
    if constexpr (with_value) values = in.take(n * sizeof(Value));
    const auto one = [&](std::size_t k) {
      Value value{};
      if constexpr (with_value) {
        std::memcpy(&value, values, sizeof value);
        values += sizeof value;
      }
      accept(shared[k], value);
    };
    if (bits) {
      for (std::size_t b = 0; 8 * b < shared.size(); ++b)
        for (auto left = std::to_integer<unsigned>(which[b]); left != 0; left &= left - 1)
          one(8 * b + static_cast<std::size_t>(__builtin_ctz(left)));
    } else {
      for (std::uint64_t i = 0; i < n; ++i) {
        std::uint32_t k = 0;
        std::memcpy(&k, which + i * sizeof k, sizeof k);
        one(k);
      }
    }
  }

  Comm comm_;
  const distributed_graph& graph_;
  const halo& borders_;
  vertex_bits marked_;
  std::size_t marks_ = 0;
};

}  // namespace paracel::alg
