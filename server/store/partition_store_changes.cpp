// SPDX-License-Identifier: BSD-3-Clause
//
// Changes in a store whose partitions have replicas, as records.
#include <algorithm>

#include "server/store/partition_store.hpp"

namespace paracel::srv {

void partition_store::order_changes() {
  at_ = {};
  auto& j = log_;
  const auto by_hash = [](const auto& a, const auto& b) { return a.hash < b.hash; };  // and so by partition
  const auto by_partition = [](const auto& a, const auto& b) { return a.partition < b.partition; };
  std::stable_sort(j.keys().begin(), j.keys().end(), by_hash);
  std::stable_sort(j.rows().begin(), j.rows().end(), by_hash);
  std::stable_sort(j.batches().begin(), j.batches().end(), by_partition);
  std::stable_sort(j.applied().begin(), j.applied().end(), by_partition);
  std::sort(j.cleared().begin(), j.cleared().end());
  std::sort(j.touched().begin(), j.touched().end());
}

/// The least partition not yet encoded that has changed, or been touched.
bool partition_store::next_changed(std::uint16_t& partition) {
  auto& j = log_;
  std::uint32_t least = partition_count;
  const auto see = [&](const auto& list, std::size_t at, const auto& partition_at) {
    if (at < list.size()) least = std::min<std::uint32_t>(least, partition_at(list[at]));
  };
  see(j.keys(), at_.key, [](const auto& k) { return partition_of(k.hash); });
  see(j.rows(), at_.row, [](const auto& r) { return partition_of(r.hash); });
  see(j.batches(), at_.batch, [](const auto& b) { return b.partition; });
  see(j.applied(), at_.applied, [](const auto& a) { return a.partition; });
  see(j.cleared(), at_.cleared, [](const auto p) { return p; });
  see(j.touched(), at_.touched, [](const auto p) { return p; });
  if (least == partition_count) return false;
  partition = static_cast<std::uint16_t>(least);
  return true;
}

void partition_store::encode_changes(std::uint16_t partition, std::vector<std::byte>& out) {
  auto& j = log_;
  while (at_.touched < j.touched().size() && j.touched()[at_.touched] == partition) ++at_.touched;
  const bool cleared = at_.cleared < j.cleared().size() && j.cleared()[at_.cleared] == partition;
  if (cleared) append(out, {.kind = record_kind::clear});
  while (at_.cleared < j.cleared().size() && j.cleared()[at_.cleared] == partition) ++at_.cleared;
  while (at_.key < j.keys().size() && partition_of(j.keys()[at_.key].hash) == partition) {
    at_.key = encode_key_changes(at_.key, out);
  }
  const auto batch = at_.batch;
  while (at_.batch < j.batches().size() && j.batches()[at_.batch].partition == partition) ++at_.batch;
  const auto row = at_.row;
  while (at_.row < j.rows().size() && partition_of(j.rows()[at_.row].hash) == partition) ++at_.row;
  rows_.encode_changes(partition, std::span(j.rows()).subspan(row, at_.row - row),
                       std::span(j.batches()).subspan(batch, at_.batch - batch), out);
  for (; at_.applied < j.applied().size() && j.applied()[at_.applied].partition == partition; ++at_.applied) {
    const auto& a = j.applied()[at_.applied];
    append_applied(out, a.client, a.low, a.sequence, {a.flags, j.items(a)});
  }
}

/// Writes the current state of one key, whose changes begin at `first`. Returns: where those of the next begin.
std::size_t partition_store::encode_key_changes(std::size_t first, std::vector<std::byte>& out) {
  const auto& list = log_.keys();
  const auto hash = list[first].hash;
  const auto key = log_.text(list[first].at, list[first].bytes);
  std::uint8_t what = 0;
  std::uint64_t arrival = ~std::uint64_t{0};
  std::uint32_t folded = 0;
  auto next = first;
  for (; next < list.size() && list[next].hash == hash; ++next) {
    const auto& c = list[next];
    if (log_.text(c.at, c.bytes) != key) break;
    what |= c.what;
    folded = std::max(folded, c.folded);
    if ((c.what & change_log::waits) != 0) arrival = std::min(arrival, c.arrival);
  }
  const auto bytes = net::bytes_of(key);
  const auto staged = staged_.find(key, hash);
  if ((what & change_log::gone) != 0) append(out, {.kind = record_kind::erase, .key = bytes});
  else if (folded != 0) append(out, {.kind = record_kind::folded, .a = folded, .key = bytes});
  if ((what & change_log::whole) != 0) {
    if (const auto* e = keys_.find(hash, key)) encode_key(*e, hash, out);
  }
  if (staged == staged_.end()) return next;
  if ((what & change_log::gone) != 0) {
    encode_staged(key, staged->second, out);
    return next;
  }
  if ((what & change_log::waits) != 0) {
    for (const auto& u : staged->second.waiting) {
      if (u.arrival >= arrival) encode_staged(key, u, out);
    }
  }
  encode_broken(key, staged->second, out);
  return next;
}

}  // namespace paracel::srv
