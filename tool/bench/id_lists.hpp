// SPDX-License-Identifier: BSD-3-Clause
//
// The rows that bench_rows and its baseline ask for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace paracel::bench {

/// Lists of ids below `rows`, drawn at random.
class id_lists {
 public:
  /// `order`: random (an id may occur twice), unique (it does not), or ascending (those, sorted).
  /// `different`: lists that are used in turn; 0: no list is used twice.
  id_lists(std::uint64_t rows, std::size_t ids_per_list, std::size_t different, const std::string& order)
      : fresh_(different == 0), room_(fresh_ ? rows / 8 : 0), lists_(fresh_ ? drawn : different) {
    std::mt19937_64 random(1);
    for (auto& list : lists_) {
      list.resize(ids_per_list);
      for (auto& id : list) id = random() % (rows - room_);
      if (order == "random") continue;
      std::set<std::uint64_t> ids(list.begin(), list.end());
      while (ids.size() < list.size()) ids.insert(random() % (rows - room_));
      list.assign(ids.begin(), ids.end());
      if (order == "unique") std::shuffle(list.begin(), list.end(), random);
    }
  }
  /// Valid until the next call. Cost: for a list that is not used twice, an addition an id.
  std::span<const std::uint64_t> next() {
    const auto& list = lists_[calls_ % lists_.size()];
    const auto shift = calls_++ / lists_.size() + 1;
    if (!fresh_) return list;
    shifted_.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) shifted_[i] = list[i] + shift % (room_ + 1);
    return shifted_;
  }

 private:
  static constexpr std::size_t drawn = 64;

  bool fresh_;
  std::uint64_t room_;  // ids above those that were drawn: lists are shifted by up to this much
  std::vector<std::vector<std::uint64_t>> lists_;
  std::vector<std::uint64_t> shifted_;
  std::uint64_t calls_ = 0;
};

}  // namespace paracel::bench
