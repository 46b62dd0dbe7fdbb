// SPDX-License-Identifier: BSD-3-Clause
//
// Lists of ids or keys that a program passes repeatedly: which of them are worth preparing, and their prepared forms. A
// list is recognised by a print (a hash of a few of its elements), and then compared as a whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/hash.hpp"

namespace paracel {

/// A list's print, from its size and a few of its elements; `at(i)` is a hash of element i. Cost: O(1).
template <class At>
std::uint64_t print_of_list(std::size_t size, const At& at) {
  std::array<std::uint64_t, 17> sample{size};
  const auto step = std::max<std::size_t>(size / (sample.size() - 1), 1);
  for (std::size_t k = 1, i = 0; k < sample.size() && i < size; ++k, i += step) sample[k] = at(i);
  if (size != 0) sample.back() ^= at(size - 1);
  return XXH3_64bits(sample.data(), sizeof sample);
}

/// Prepared lists by print, within `most_bytes`.
///
/// A list that is passed for the second time is worth preparing. One that has the print of a prepared list and differs
/// replaces it, but is prepared later each time: lists of which only a few elements change are not worth it. If there
/// is no room, a list that was not used for a while is evicted, at most once in `patience` calls, so that too many
/// lists used in turn do not keep evicting one another.
///
/// Thread-safety: none.
/// Cost: a list that is never repeated costs its print; a repeated one, a comparison.
template <class List>
class repeated_lists {
 public:
  explicit repeated_lists(std::size_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  /// The prepared list with this print for which `is_same(list)`; null if there is none.
  template <class Same>
  std::shared_ptr<List> find(std::uint64_t print, const Same& is_same) {
    ++calls_;
    const auto at = lists_.find(print);
    if (at == lists_.end()) return nullptr;
    if (is_same(*at->second.list)) {
      at->second.used = calls_;
      return at->second.list;
    }
    drop(at);
    auto& s = seen_of(print);
    const auto needed = s.print == print ? s.needed : std::uint8_t{1};
    s = {print, 0, static_cast<std::uint8_t>(std::min(needed * 2, 128))};
    return nullptr;
  }
  /// After `find` returned null: whether the list with this print should be prepared now, in this many bytes. Counts
  /// the call.
  bool is_due(std::uint64_t print, std::size_t bytes) {
    auto& s = seen_of(print);
    if (s.print != print) s = {print, 0, 1};
    if (++s.count <= s.needed) return false;
    s.count = s.needed;
    return make_room(bytes);
  }
  /// Keeps a list; one of the same print is replaced.
  void keep(std::uint64_t print, std::shared_ptr<List> list, std::size_t bytes) {
    if (const auto at = lists_.find(print); at != lists_.end()) drop(at);
    lists_.emplace(print, kept{std::move(list), bytes, calls_});
    order_.push_back(print);
    bytes_ += bytes;
  }
  [[nodiscard]] std::size_t size() const noexcept { return lists_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct kept {
    std::shared_ptr<List> list;
    std::size_t bytes;
    std::uint64_t used;  // in which call
  };
  struct seen {
    std::uint64_t print = 0;
    std::uint8_t count = 0;
    std::uint8_t needed = 1;  // sightings before it is prepared
  };
  static constexpr std::size_t prints = 1024;  // remembered, by their last bits
  static constexpr std::uint64_t patience = 64;

  seen& seen_of(std::uint64_t print) {
    if (seen_.empty()) seen_.resize(prints);
    return seen_[print % prints];
  }
  void drop(typename std::unordered_map<std::uint64_t, kept>::iterator at) {
    bytes_ -= at->second.bytes;
    order_.erase(std::find(order_.begin(), order_.end(), at->first));
    lists_.erase(at);
  }
  bool make_room(std::size_t bytes) {
    if (bytes > most_bytes_ / 4) return false;
    if (bytes_ + bytes <= most_bytes_) return true;
    if (calls_ - made_room_ < patience) return false;
    while (bytes_ + bytes > most_bytes_) {
      const auto oldest = lists_.find(order_.front());
      if (calls_ - oldest->second.used < patience) {
        order_.push_back(order_.front());
        order_.pop_front();
        return false;
      }
      drop(oldest);
    }
    made_room_ = calls_;
    return true;
  }

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t made_room_ = 0;  // in which call
  std::unordered_map<std::uint64_t, kept> lists_;
  std::deque<std::uint64_t> order_;  // of these, the oldest first
  std::vector<seen> seen_;
};

}  // namespace paracel
