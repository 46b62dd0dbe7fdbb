// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "net/mutex.hpp"

namespace paracel::srv {

/// The keys that a shard is asked for most. Of about one request in 128 a key is counted, in a table in which a new key
/// takes the place, and the count, of the one with the fewest: a key with more than 1/32 of the requests stays.
/// Source: Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams, 2005.
/// Thread-safety: `is_due` and `count` by the shard thread, the rest by any.
/// Cost: a counter; of one request in 128 a lock that is free, and 32 comparisons.
class hot_keys {
 public:
  static constexpr std::uint32_t one_of = 128;
  static constexpr std::size_t most = 32;
  static constexpr std::size_t most_key_bytes = 256;  ///< the rest of a longer key is cut off

  struct entry {
    std::string key{};
    std::uint64_t requests = 0;  ///< an estimate; of a rare key too high
  };

  [[nodiscard]] bool is_due() noexcept {
    if (--left_ != 0) return false;
    // At irregular distances, since requests may come in a rhythm (Knuth, MMIX).
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    left_ = 1 + static_cast<std::uint32_t>((random_ >> 33U) % (2 * one_of - 1));
    return true;
  }
  /// Another number each time `is_due`.
  [[nodiscard]] std::uint64_t random() const noexcept { return random_ >> 20U; }

  /// `keys`: in the request, of which `key` was chosen at random. Throws: std::bad_alloc; nothing has changed then.
  void count(std::string_view key, std::uint64_t keys) {
    key = key.substr(0, most_key_bytes);
    const mutex_lock held(mutex_);
    auto found = std::ranges::find(table_, key, &entry::key);
    if (found == table_.end()) {
      found = std::ranges::min_element(table_, {}, &entry::requests);
      found->key.assign(key);
    }
    found->requests += keys * one_of;
  }

  /// The most frequent first.
  [[nodiscard]] std::vector<entry> list() const {
    std::vector<entry> all;
    {
      const mutex_lock held(mutex_);
      std::ranges::copy_if(table_, std::back_inserter(all), [](const entry& e) { return e.requests != 0; });
    }
    std::ranges::sort(all, std::greater<>{}, &entry::requests);
    return all;
  }

 private:
  std::uint32_t left_ = 1;
  std::uint64_t random_ = 1;
  mutable mutex mutex_;
  std::array<entry, most> table_ PARACEL_GUARDED_BY(mutex_);
};

}  // namespace paracel::srv
