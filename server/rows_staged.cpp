// SPDX-License-Identifier: BSD-3-Clause
//
// BSP at typed tables: batches that wait for the clock.
#include <algorithm>
#include <deque>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "server/rows_service.hpp"

namespace paracel::srv {

using net::status;

rows_service::problem rows_service::stage(typed_table& t, const net::request_view& request, blob&& tail,
                                          std::uint32_t folded_clock) {
  const auto& h = request.header;
  auto payload = tail ? blob::own(std::move(tail)) : blob::copy_of(request.payload());
  auto held = counted(payload);
  t.staged[net::any_partition].push_back({h.clock, h.rank, arrivals_++, h.count, (h.flags & net::flag_named) != 0,
                                          std::move(payload), std::move(held)});
  ++staged_count_;
  folded_to_ = std::min(folded_to_, h.clock);
  if (journal_ != nullptr) {
    split_staged(t);
    auto partitions = hashes_;
    for (auto& p : partitions) p = partition_of(p);
    std::sort(partitions.begin(), partitions.end());
    partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
    for (const auto p : partitions) {
      journal_->rows_staged(net::table_id(t.name), static_cast<std::uint16_t>(p), arrivals_ - 1);
    }
  }
  fold_before(folded_clock, t, [] { return false; });  // one that comes late was sent again
  return t.failure();
}

std::uint64_t rows_service::fence(std::uint32_t rank, std::uint32_t clock, std::string& example) {
  std::uint64_t dropped = 0;
  for (auto& [id, t] : tables_) {
    if (journal_ != nullptr) split_staged(*t);
    for (auto& [partition, waiting] : t->staged) {
      if (partition != net::any_partition && !keys_.owns(partition)) continue;  // a copy: as its head says
      const auto gone = std::erase_if(waiting, [&](const auto& b) { return b.rank == rank && b.clock >= clock; });
      dropped += gone;
      if (gone != 0 && example.empty()) example = "table \"" + t->name + "\"";
      if (gone == 0 || journal_ == nullptr) continue;
      journal_->rows_folded(id, partition, net::no_clock);  // all of them; what is left follows
      for (const auto& b : waiting) journal_->rows_staged(id, partition, b.arrival);
    }
  }
  staged_count_ -= dropped;
  return dropped;
}

bool rows_service::fold_before(std::uint32_t clock, const std::function<bool()>& over) {
  if (!has_due(clock)) return true;
  if (!std::ranges::all_of(tables_, [&](const auto& t) { return fold_before(clock, *t.second, over); })) return false;
  folded_to_ = clock;
  return true;
}

/// Folds the table's batches of clocks before this one, in the order (clock, rank, arrival), until `over`. Returns: whether
/// none is left.
bool rows_service::fold_before(std::uint32_t clock, typed_table& t, const std::function<bool()>& over) {
  // Partitions have no row in common. With copies a partition is folded as a whole: a copy is told up to which clock.
  if (journal_ != nullptr || t.staged.size() > 1) split_staged(t);
  for (auto& [partition, waiting] : t.staged) {
    if (waiting.empty() || (partition != net::any_partition && !keys_.owns(partition))) continue;  // a copy: its head folds
    const auto due = std::partition(waiting.begin(), waiting.end(), [&](const auto& b) { return b.clock >= clock; });
    if (due == waiting.end()) continue;
    if (journal_ != nullptr) journal_->rows_folded(net::table_id(t.name), partition, clock);
    std::sort(due, waiting.end(), [](const auto& a, const auto& b) {
      return std::tie(a.clock, a.rank, a.arrival) < std::tie(b.clock, b.rank, b.arrival);
    });
    // They are taken out first: whatever happens to one, none is folded twice.
    std::deque<staged_batch> now(std::make_move_iterator(due), std::make_move_iterator(waiting.end()));
    waiting.erase(due, waiting.end());
    bool stop = false;
    while (!now.empty() && !stop) {
      const auto b = std::move(now.front());
      now.pop_front();
      --staged_count_;
      fold(t, b);
      stop = journal_ == nullptr && over();
    }
    waiting.insert(waiting.end(), std::make_move_iterator(now.begin()), std::make_move_iterator(now.end()));
    if (stop || over()) return false;
  }
  std::erase_if(t.staged, [](const auto& s) { return s.second.empty(); });
  return true;
}

void rows_service::fold(typed_table& t, const staged_batch& b) {
  net::rows_view r;
  (void)net::decode(b.payload.bytes(), b.count, b.named, t.layout().value_bytes(), r);  // was checked when it came
  problem p;
  failed_row_ = 0;
  try {
    p = locate(r, b.named);
    if (!p) p = update(t, rows_of(t, b.named), r);
    if (journal_ != nullptr) note_rows(t, b.named);
  } catch (const std::bad_alloc&) {
    p = refusal{status::out_of_memory, "table \"" + t.name + "\": there was no memory for it"};
  }
  if (!p) return;
  const auto where = failed_row_ < hashes_.size() ? partition_of(hashes_[failed_row_]) : std::uint16_t{0};
  if (t.broken.empty()) t.first_broken = where;
  t.broken.try_emplace(where, refusal{p->why, "staged rows of rank " + std::to_string(b.rank) + " in iteration " +
                                                  std::to_string(b.clock) + ": " + p->text});
}

net::status rows_service::failed_fold(std::string& why) const {
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
