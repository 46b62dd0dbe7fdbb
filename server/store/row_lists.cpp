// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_lists.hpp"

namespace paracel::srv {

row_list& row_lists::add(std::uint32_t table, const digest128& digest, std::span<const std::uint64_t> ids,
                         std::span<const std::uint64_t> hashes) {
  if (auto* known = find(table, digest)) return *known;
  std::list<row_list> fresh(1);
  auto& l = fresh.front();
  l.digest_ = digest;
  l.table_ = table;
  l.ids_.assign(ids.begin(), ids.end());
  l.hashes_.assign(hashes.begin(), hashes.end());
  l.rows_.resize(ids.size());
  by_name_[{digest, table}] = fresh.begin();
  lists_.splice(lists_.begin(), fresh);
  budget_.add(l.memory_bytes());
  while (budget_.is_over() && lists_.size() > 1) {
    const auto& last = lists_.back();
    budget_.give_back(last.memory_bytes());
    by_name_.erase({last.digest_, last.table_});
    lists_.pop_back();
  }
  return lists_.front();
}

row_list* row_lists::find(std::uint32_t table, const digest128& digest) {
  const auto at = by_name_.find({digest, table});
  if (at == by_name_.end()) return nullptr;
  lists_.splice(lists_.begin(), lists_, at->second);
  return &lists_.front();
}

}  // namespace paracel::srv
