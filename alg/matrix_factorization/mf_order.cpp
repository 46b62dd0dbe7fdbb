// SPDX-License-Identifier: BSD-3-Clause
#include "mf_order.hpp"

#include <algorithm>
#include <numeric>

#include <paracel/random.hpp>

#include "alg/common/solvers/huge_pages.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint64_t user_order_stream = 3;
constexpr std::uint64_t rating_order_stream = 4;
// A user's columns may be anywhere in memory: they are prefetched this many users ahead.
constexpr std::size_t users_ahead = 8;

}  // namespace

template <class Real>
mf_order<Real>::mf_order(const sparse_rows& ratings, std::uint64_t seed, double offset)
    : ratings_(ratings),
      seed_(seed),
      user_(ratings.rows()),
      begin_(ratings.begin),
      count_(ratings.column_ids.size()),
      slot_(ratings.column_ids.size()) {
  reserve_huge(column_, ratings.column.size());
  reserve_huge(value_, ratings.column.size());
  column_.resize(ratings.column.size());
  value_.resize(ratings.column.size());
  std::iota(user_.begin(), user_.end(), 0U);
  for (std::size_t u = 0; u < user_.size(); ++u) {
    counter_random random(seed, rating_order_stream, ratings.row_ids.key(u));
    const auto first = ratings.begin[u];
    // Inside-out shuffle: each element is written once.
    for (std::uint64_t i = 0; first + i < ratings.begin[u + 1]; ++i) {
      const auto other = random.below(i + 1);
      column_[first + i] = column_[first + other];
      value_[first + i] = value_[first + other];
      column_[first + other] = ratings.column[first + i];
      value_[first + other] = static_cast<Real>(ratings.value[first + i] - offset);
    }
  }
}

template <class Real>
void mf_order<Real>::shuffle(std::uint64_t round) {
  std::iota(user_.begin(), user_.end(), 0U);
  counter_random(seed_, user_order_stream, round).shuffle(user_);
  std::uint64_t at = 0;
  for (std::size_t j = 0; j < user_.size(); ++j) {
    begin_[j] = at;
    at += ratings_.begin[user_[j] + 1] - ratings_.begin[user_[j]];
  }
  begin_.back() = at;
}

template <class Real>
void mf_order<Real>::fetch(std::size_t j) const {
  if (j >= user_.size()) return;
  const auto u = user_[j];
  constexpr std::uint64_t line = 64;
  for (auto at = ratings_.begin[u]; at < ratings_.begin[u + 1]; at += line / sizeof(std::uint32_t))
    __builtin_prefetch(column_.data() + at);
}

template <class Real>
void mf_order<Real>::cut(std::size_t number, std::size_t count, piece& into) {
  const std::uint64_t n = column_.size();
  const std::uint64_t first = n * number / count;
  const std::uint64_t last = n * (number + 1) / count;
  into.user.clear();
  into.begin.clear();
  into.end.clear();
  std::ranges::fill(count_, 0U);
  std::size_t j = static_cast<std::size_t>(std::upper_bound(begin_.begin(), begin_.end(), first) - begin_.begin()) - 1;
  for (std::uint64_t at = first; at < last; ++j) {
    const std::uint64_t end = std::min(begin_[j + 1], last);
    if (end == at) continue;
    fetch(j + users_ahead);
    const auto from = ratings_.begin[user_[j]] + (at - begin_[j]);
    into.user.push_back(user_[j]);
    into.begin.push_back(from);
    into.end.push_back(from + (end - at));
    for (auto i = from; i < from + (end - at); ++i) ++count_[column_[i]];
    at = end;
  }
  into.column.clear();
  into.steps.clear();
  for (std::uint32_t c = 0; c < count_.size(); ++c) {
    if (count_[c] == 0) continue;
    slot_[c] = static_cast<std::uint32_t>(into.column.size());
    into.column.push_back(c);
    into.steps.push_back(count_[c]);
  }
}

template class mf_order<float>;
template class mf_order<double>;

}  // namespace paracel::alg
