// SPDX-License-Identifier: BSD-3-Clause
//
// Arrays of differential_test.cpp: one for each worker, which knows all its values, and one to which all workers add.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <paracel/array.hpp>
#include <paracel/comm.hpp>
#include <paracel/paralg.hpp>

#include "test/support/random_values.hpp"

namespace paracel::test::differential {

class own_arrays {
 public:
  static constexpr std::size_t size = 3000;

  own_arrays(paralg& a, const Comm& comm, generator& random, bool bsp)
      : a_(a), comm_(comm), random_(random), bsp_(bsp) {
    make();
  }

  /// Creates the arrays, which must not exist.
  void make() {
    own_.reset();
    shared_.reset();
    array_options small;
    small.piece_bytes = 4096;
    own_.emplace(a_, "array" + std::to_string(comm_.get_rank()), size, 1, small);
    shared_.emplace(a_, "array", size, 0, small);
    now_.assign(size, 1);
    staged_.assign(size, 0);
    sums_.assign(size, 0);
  }
  /// The clock has advanced: staged updates take effect.
  void commit() {
    for (std::size_t i = 0; i < size; ++i) now_[i] = sum(now_[i], std::exchange(staged_[i], 0));
  }
  /// Call it when no update is in flight. Every worker must call it.
  void check() {
    auto elements = sums_;
    comm_.allreduce(elements);
    EXPECT_EQ(shared_->read(), elements) << "the shared array";
    EXPECT_EQ(own_->read(), now_) << "one's own array";
  }

  void read() {
    const auto [first, n] = any_range();
    std::vector<std::int64_t> got(n);
    own_->read(first, got);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], now_[first + i]) << first + i;
  }
  void read_at() {
    const auto indices = any_indices();
    const auto got = own_->read_at(indices);
    ASSERT_EQ(got.size(), indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) ASSERT_EQ(got[i], now_[indices[i]]) << indices[i];
  }
  void write() {
    const auto [first, n] = any_range();
    const auto values = any_numbers(n);
    own_->write(first, values);
    std::copy(values.begin(), values.end(), now_.begin() + static_cast<std::ptrdiff_t>(first));
  }
  void update() {
    const auto [first, n] = any_range();
    const auto deltas = any_numbers(n);
    const bool at_once = random_.one_in(4);
    if (at_once) own_->bupdate(first, deltas);
    else (void)own_->update(first, deltas);
    auto& to = bsp_ && !at_once ? staged_ : now_;
    for (std::size_t i = 0; i < n; ++i) to[first + i] = sum(to[first + i], deltas[i]);
  }
  void update_at() {
    const auto indices = any_indices();
    const auto deltas = any_numbers(indices.size());
    const bool at_once = random_.one_in(4);
    if (at_once) own_->bupdate_at(indices, deltas);
    else (void)own_->update_at(indices, deltas);
    auto& to = bsp_ && !at_once ? staged_ : now_;
    for (std::size_t i = 0; i < indices.size(); ++i) to[indices[i]] = sum(to[indices[i]], deltas[i]);
  }
  void add_shared() {
    if (random_.one_in(2)) {
      const auto [first, n] = any_range();
      const auto deltas = any_numbers(n);
      (void)shared_->update(first, deltas);
      for (std::size_t i = 0; i < n; ++i) sums_[first + i] = sum(sums_[first + i], deltas[i]);
    } else {
      const auto indices = any_indices();
      const auto deltas = any_numbers(indices.size());
      (void)shared_->update_at(indices, deltas);
      for (std::size_t i = 0; i < indices.size(); ++i) sums_[indices[i]] = sum(sums_[indices[i]], deltas[i]);
    }
  }

 private:
  std::pair<std::size_t, std::size_t> any_range() {
    if (random_.one_in(3)) return {0, size};
    const auto first = random_.number(size);
    return {first, random_.number(std::min<std::size_t>(size - first, 1200) + 1)};
  }
  std::vector<std::uint64_t> any_indices() {
    std::vector<std::uint64_t> indices(random_.number(30));
    for (auto& i : indices) i = random_.number(random_.one_in(4) ? 3 : size);  // some of them twice
    return indices;
  }
  std::vector<std::int64_t> any_numbers(std::size_t n) {
    std::vector<std::int64_t> all(n);
    for (auto& x : all) random_.fill(x);
    return all;
  }

  paralg& a_;
  Comm comm_;
  generator& random_;
  bool bsp_;
  std::optional<array<std::int64_t>> own_, shared_;
  std::vector<std::int64_t> now_, staged_;  // of the own array: what a read returns; what takes effect at the commit
  std::vector<std::int64_t> sums_;          // of the shared array: what this worker has added
};

}  // namespace paracel::test::differential
