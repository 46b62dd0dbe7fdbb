// SPDX-License-Identifier: BSD-3-Clause
//
// BSP on typed tables: batches that wait for the clock.
#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "server/store/row_service.hpp"

namespace paracel::srv {

using net::status;

row_service::problem row_service::stage(typed_table& t, const net::request_view& request, shared_buffer&& tail,
                                        std::uint32_t folded_clock) {
  const auto& h = request.header;
  auto payload = tail ? shared_buffer::own(std::move(tail)) : shared_buffer::copy_of(request.payload());
  auto held = counted(payload);
  const auto arrival = arrivals_++;
  for (const auto& x : in_hand_) changes_.rows_staged(net::table_id(t.name), x.partition, arrival);
  auto& whole = t.staged[net::any_partition];
  whole.push_back(
      {h.clock, h.rank, arrival, h.count, (h.flags & net::flag_named) != 0, std::move(payload), std::move(held)});
  ++staged_count_;
  folded_to_ = std::min(folded_to_, h.clock);
  if (changes_.recording()) {
    try {
      split_staged(t);
    } catch (const std::bad_alloc&) {
      whole.pop_back();
      --staged_count_;
      throw;
    }
  }
  try {
    fold_before(folded_clock, t, [] { return false; });  // a late batch was retried
    return t.failure();
  } catch (const std::bad_alloc&) {  // it is staged, and folded before the next read
    return {};
  }
}

std::uint64_t row_service::fence(std::uint32_t rank, std::uint32_t clock, std::string& example) {
  std::uint64_t dropped = 0;
  for (auto& [id, t] : tables_) {
    if (changes_.recording()) split_staged(*t);
    for (auto& [partition, waiting] : t->staged) {
      if (partition != net::any_partition && !keys_.owns(partition)) continue;  // a replica: its head decides
      const auto goes = [&](const auto& b) { return b.rank == rank && b.clock >= clock; };
      if (std::ranges::none_of(waiting, goes)) continue;
      if (example.empty()) example = "table \"" + t->name + "\"";
      changes_.make_room_for_batches(waiting.size());
      const auto gone = std::erase_if(waiting, goes);
      dropped += gone;
      PARACEL_CHECK(gone <= staged_count_);
      staged_count_ -= gone;
      changes_.rows_folded(id, partition, net::no_clock);  // all of them; those that are left follow
      for (const auto& b : waiting) changes_.rows_staged(id, partition, b.arrival);
    }
  }
  return dropped;
}

bool row_service::fold_before(std::uint32_t clock, const std::function<bool()>& over) {
  if (!has_due(clock)) return true;
  if (!std::ranges::all_of(tables_, [&](const auto& t) { return fold_before(clock, *t.second, over); })) return false;
  folded_to_ = clock;
  return true;
}

/// Folds the table's batches of clocks before this one, in the order (clock, rank, arrival), until `over`. Returns:
/// whether none is left. Throws: std::bad_alloc; what is not folded is staged as before.
bool row_service::fold_before(std::uint32_t clock, typed_table& t, const std::function<bool()>& over) {
  // Partitions share no rows. With replicas a partition is folded as a whole: a replica is told up to which clock.
  if (changes_.recording() || t.staged.size() > 1) split_staged(t);
  for (auto& [partition, waiting] : t.staged) {
    if (waiting.empty() || (partition != net::any_partition && !keys_.owns(partition)))
      continue;  // a replica: its head folds
    const auto due = std::partition(waiting.begin(), waiting.end(), [&](const auto& b) { return b.clock >= clock; });
    if (due == waiting.end()) continue;
    std::sort(due, waiting.end(), [](const auto& a, const auto& b) {
      return std::tie(a.clock, a.rank, a.arrival) < std::tie(b.clock, b.rank, b.arrival);
    });
    std::vector<staged_batch> now;
    now.reserve(static_cast<std::size_t>(waiting.end() - due));
    std::map<std::uint16_t, refusal> spare;  // a failure can be recorded without allocating
    spare.try_emplace(partition);
    auto failure = spare.extract(spare.begin());
    changes_.rows_folded(net::table_id(t.name), partition, clock);
    // They are removed first: whatever happens to one, none is folded twice.
    std::move(due, waiting.end(), std::back_inserter(now));
    waiting.erase(due, waiting.end());
    auto next = now.begin();
    bool stop = false;
    while (next != now.end() && !stop) {
      const auto b = std::move(*next++);
      PARACEL_CHECK(staged_count_ != 0);
      --staged_count_;
      fold(t, b, partition, failure);
      stop = !changes_.recording() && over();
    }
    std::move(next, now.end(), std::back_inserter(waiting));
    if (stop || over()) return false;
  }
  std::erase_if(t.staged, [](const auto& s) { return s.second.empty(); });
  return true;
}

/// Folds a batch. The first failure of a partition is recorded, in the node `failure`.
void row_service::fold(typed_table& t, const staged_batch& b, std::uint16_t partition,
                       std::map<std::uint16_t, refusal>::node_type& failure) noexcept {
  net::rows_view r;
  (void)net::decode(b.payload.bytes(), b.count, b.named, t.layout().value_bytes(), r);  // was checked on arrival
  problem p;
  failed_row_ = 0;
  try {
    p = locate(r, b.named);
    if (!p && changes_.recording()) record_rows(t, b.named);
    if (!p) p = update(t, rows_of(t, b.named), r);
  } catch (const std::exception&) {
    p = no_memory(t);
  }
  if (!p) return;
  auto where = partition;
  if (where == net::any_partition) where = failed_row_ < hashes_.size() ? partition_of(hashes_[failed_row_]) : 0;
  if (t.broken.contains(where) || failure.empty()) return;  // the table's readers are told of an earlier failure
  if (t.broken.empty()) t.first_broken = where;
  failure.key() = where;
  failure.mapped() = {p->why, told_by([&] {
                        return "staged rows of rank " + std::to_string(b.rank) + " in iteration " +
                               std::to_string(b.clock) + ": " + p->text;
                      })};
  t.broken.insert(std::move(failure));
}

net::status row_service::failed_fold(std::string& why) const {
  for (const auto& [id, t] : tables_) {
    for (const auto& [partition, p] : t->broken) {
      if (!keys_.owns(partition)) continue;
      why = p.text;
      return p.why;
    }
  }
  return status::ok;
}

}  // namespace paracel::srv
