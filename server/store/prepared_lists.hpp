// SPDX-License-Identifier: BSD-3-Clause
//
// Lists that clients use repeatedly: sent once, and from then on named by their digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include <tsl/robin_map.h>

#include "core/hash.hpp"
#include "server/request/byte_budget.hpp"

namespace paracel::srv {

struct list_name {
  digest128 digest;
  std::uint32_t table = 0;  ///< of row ids, which have other rows in another table; 0: keys
  friend bool operator==(const list_name&, const list_name&) = default;
};

/// The lists of one shard, in LRU order.
///
/// Thread-safety: owned by the shard thread, except `budget`.
/// Cost: the least recently used lists are evicted when `most_bytes` is exceeded, the newest never.
template <class List>
class prepared_lists {
 public:
  explicit prepared_lists(std::size_t most_bytes) : budget_(most_bytes) {}

  /// Adds a list that `find` did not find. Valid until the next `add`. Throws: std::bad_alloc; nothing has changed.
  List& add(const list_name& name, List&& list) {
    std::list<std::pair<list_name, List>> fresh;
    fresh.emplace_back(name, std::move(list));
    by_name_[name] = fresh.begin();
    lists_.splice(lists_.begin(), fresh);
    budget_.add(lists_.front().second.memory_bytes());
    while (budget_.is_over() && lists_.size() > 1) {
      const auto& [last, evicted] = lists_.back();
      budget_.give_back(evicted.memory_bytes());
      by_name_.erase(last);
      lists_.pop_back();
    }
    return lists_.front().second;
  }
  /// Null: unknown, or evicted. Valid until the next `add`.
  [[nodiscard]] List* find(const list_name& name) {
    if (lists_.empty()) return nullptr;
    if (lists_.front().first != name) {
      const auto at = by_name_.find(name);
      if (at == by_name_.end()) return nullptr;
      lists_.splice(lists_.begin(), lists_, at->second);
    }
    return &lists_.front().second;
  }

  [[nodiscard]] std::size_t size() const noexcept { return lists_.size(); }
  /// The memory of all lists. Thread-safety: any thread.
  [[nodiscard]] const byte_budget& budget() const noexcept { return budget_; }

 private:
  struct name_hash {
    std::size_t operator()(const list_name& n) const noexcept { return n.digest.low ^ n.table; }
  };

  byte_budget budget_;
  std::list<std::pair<list_name, List>> lists_;
  tsl::robin_map<list_name, typename std::list<std::pair<list_name, List>>::iterator, name_hash> by_name_;
};

}  // namespace paracel::srv
