// SPDX-License-Identifier: BSD-3-Clause
//
// The order in which a worker of mf visits its ratings.
//
// The ratings of each user are shuffled once; each round visits the users in a new order. So a user's ratings are read
// sequentially, and no random number is drawn for a rating. Reshuffling them in each round made no difference to what
// is learned (README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/sparse.hpp>

namespace paracel::alg {

/// Numbers columns 0, 1, ... in the order in which they first occur. Thread-safety: none
class column_slots {
 public:
  explicit column_slots(std::size_t columns) : slot_(columns, none) {}
  /// The slot of a column, an index into `columns`.
  std::uint32_t of(std::uint32_t column) {
    auto& slot = slot_[column];
    if (slot == none) {
      slot = static_cast<std::uint32_t>(columns_.size());
      columns_.push_back(column);
    }
    return slot;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& columns() const noexcept { return columns_; }
  /// Forgets all columns. Cost: O(columns that occurred)
  void clear() {
    for (const auto c : columns_) slot_[c] = none;
    columns_.clear();
  }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;
  std::vector<std::uint32_t> slot_;  // by column
  std::vector<std::uint32_t> columns_;
};

/// The ratings in the order of a round, and their division into pieces. Real: of the values.
/// Thread-safety: none. Memory: 4 + sizeof(Real) bytes a rating.
template <class Real>
class mf_order {
 public:
  /// Ratings of one piece. `column`: its items, as local indices, ascending, and in `steps` how many ratings each has;
  /// those of user[j] are [begin[j], end[j]) of columns() and values().
  struct piece {
    std::vector<std::uint32_t> column;
    std::vector<std::uint32_t> steps;
    std::vector<std::uint32_t> user;
    std::vector<std::uint64_t> begin;
    std::vector<std::uint64_t> end;
  };

  /// Shuffles the ratings of each user: a function of the seed and the user's id. `offset` is subtracted from them.
  /// Lifetime: `ratings` must outlive it. Cost: O(ratings)
  mf_order(const sparse_rows& ratings, std::uint64_t seed, double offset = 0);
  /// Shuffles the users for this round: a function of the seed and the round. Cost: O(users)
  void shuffle(std::uint64_t round);
  /// Piece `number` of `count` equal ones (by ratings; a user may be split between two). Cost: O(its ratings + columns)
  void cut(std::size_t number, std::size_t count, piece& into);

  /// By rating.
  [[nodiscard]] std::span<const std::uint32_t> columns() const noexcept { return column_; }
  [[nodiscard]] std::span<const Real> values() const noexcept { return value_; }
  /// By column: its index in `column` of the piece that was cut last, if it is there.
  [[nodiscard]] std::span<const std::uint32_t> slots() const noexcept { return slot_; }

 private:
  void fetch(std::size_t j) const;

  const sparse_rows& ratings_;
  std::uint64_t seed_;
  std::vector<std::uint32_t> column_;  // ratings by user, as in ratings_, those of a user shuffled
  std::vector<Real> value_;
  std::vector<std::uint32_t> user_;   // users in this round's order
  std::vector<std::uint64_t> begin_;  // of each of them: the number of ratings before its first one
  std::vector<std::uint32_t> count_;  // by column: ratings of the piece
  std::vector<std::uint32_t> slot_;
};

extern template class mf_order<float>;
extern template class mf_order<double>;

}  // namespace paracel::alg
