// SPDX-License-Identifier: BSD-3-Clause
//
// Leases on chunks, and sums to which each chunk contributes once (paracel/chunk_leases.hpp).
#include <paracel/detail/lease_table.hpp>
#include <paracel/update.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace {

using paracel::lease_request;
using paracel::lease_table;
using paracel::once_delta;
using paracel::once_sum;

/// The same after a restart of the server, and about the same at another one that takes its place.
std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The expired lease of the earliest chunk, or the next chunk.
lease_table lease(lease_table table, const lease_request& r) {
  table.answer = -1;
  if (r.done >= 0) {
    const auto l = std::ranges::find(table.open, r.done, &lease_table::lease::number);
    if (l == table.open.end()) return table;
    table.answer = r.done;
    table.open.erase(l);
    return table;
  }
  const auto time = now();
  for (auto& l : table.open) {
    if (l.number >= r.until || time < l.expires) continue;
    l.expires = time + r.term;
    table.answer = l.number;
    return table;
  }
  if (table.next >= r.until) return table;
  table.answer = table.next++;
  table.open.push_back({table.answer, time + r.term});
  return table;
}

lease_table no_leases(const lease_request&) { return {}; }

once_sum add_once(once_sum sum, const once_delta& d) {
  if (sum.values.size() != d.values.size())
    throw paracel::type_error("the sum has " + std::to_string(sum.values.size()) + " numbers, the delta " +
                              std::to_string(d.values.size()));
  const auto at = std::ranges::lower_bound(sum.numbers, d.number);
  if (d.number < sum.from || (at != sum.numbers.end() && *at == d.number)) return sum;
  sum.numbers.insert(at, d.number);
  for (std::size_t i = 0; i < d.values.size(); ++i) sum.values[i] += d.values[i];
  sum.from = std::max(sum.from, d.from);
  sum.numbers.erase(sum.numbers.begin(), std::ranges::lower_bound(sum.numbers, sum.from));
  return sum;
}

once_sum nothing(const once_delta& d) { return {std::vector<double>(d.values.size()), 0, {}}; }

}  // namespace

extern "C" {
extern paracel::update_result paracel_lease;
extern paracel::update_result paracel_add_once;
}

paracel::update_result paracel_lease = paracel::initialised_by(paracel::update_proxy(lease), no_leases);
paracel::update_result paracel_add_once = paracel::initialised_by(paracel::update_proxy(add_once), nothing);
