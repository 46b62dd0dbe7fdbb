// SPDX-License-Identifier: BSD-3-Clause
#include "load/sparse_builder.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "load/exchange.hpp"

namespace paracel {

std::optional<std::pair<std::uint64_t, std::uint64_t>> build_rows(std::size_t rows, const loose_entries& entries,
                                                                  duplicate_rule rule, numbered_rows& out) {
  const auto n = entries.row.size();
  const bool valued = entries.valued;
  std::vector<std::uint64_t> next(rows + 1);
  for (const auto r : entries.row) ++next[r + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  const auto begin = next;
  out.column.resize(n);
  out.value.resize(valued ? n : 0);
  for (std::size_t k = 0; k < n; ++k) {
    const auto to = next[entries.row[k]]++;
    out.column[to] = entries.column[k];
    if (valued) out.value[to] = entries.value[k];
  }
  out.begin.assign(rows + 1, 0);
  std::vector<std::pair<std::uint64_t, double>> row;
  std::uint64_t kept = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    row.clear();
    for (auto k = begin[r]; k < begin[r + 1]; ++k) row.emplace_back(out.column[k], valued ? out.value[k] : 1);
    std::ranges::stable_sort(row, {}, &std::pair<std::uint64_t, double>::first);
    const auto first = kept;
    for (const auto& [column, value] : row) {
      if (kept > first && out.column[kept - 1] == column && rule != duplicate_rule::keep) {
        if (rule == duplicate_rule::refuse) return std::pair{static_cast<std::uint64_t>(r), column};
        if (valued) out.value[kept - 1] = rule == duplicate_rule::sum ? out.value[kept - 1] + value : value;
        continue;
      }
      out.column[kept] = column;
      if (valued) out.value[kept] = value;
      ++kept;
    }
    out.begin[r + 1] = kept;
  }
  out.column.resize(kept);
  if (valued) out.value.resize(kept);
  return std::nullopt;
}

loose_entries entry_sender::send(const stream& e) {
  const auto size = comm_.get_size();
  const bool valued = e.valued;
  const std::size_t item = valued ? 20 : 12;
  const auto entry = [&](std::size_t k, auto&& f) {
    const auto a = e.row_number[e.row[k]];
    const auto b = e.column_number[e.column[k]];
    if (a == b && !e.self_loops) return;
    f(a, b);
    if (e.both_ways && a != b) f(b, a);
  };
  std::vector<std::uint64_t> items(size);
  for (std::size_t k = 0; k < e.row.size(); ++k) {
    entry(k, [&](std::uint64_t a, std::uint64_t) { ++items[owner_of(first_, a)]; });
  }
  // The entries for each worker are looked for anew, each time from where the last round for it ended: no memory, and
  // as many walks as there are workers.
  struct position {
    std::size_t at = 0;
    bool second_way = false;  // the first way of entry `at` has gone
  };
  std::vector<position> positions(size);
  const auto fill = [&](std::size_t w, std::uint64_t n, byte_vector& out) {
    auto& p = positions[w];
    const auto low = first_[w];
    const auto high = first_[w + 1];
    out.resize(n * item);
    auto* to = out.data();
    const auto put = [&](std::uint64_t a, std::uint64_t b, std::size_t k) {
      const auto r = static_cast<std::uint32_t>(a - low);
      std::memcpy(to, &r, 4);
      std::memcpy(to + 4, &b, 8);
      if (valued) std::memcpy(to + 12, &e.value[k], 8);
      to += item;
      --n;
    };
    while (n > 0) {
      const auto k = p.at;
      const auto a = e.row_number[e.row[k]];
      const auto b = e.column_number[e.column[k]];
      if (a == b && !e.self_loops) {
        ++p.at;
        continue;
      }
      if (!p.second_way) {
        if (a >= low && a < high) put(a, b, k);
        p.second_way = e.both_ways && a != b;
        if (n == 0 && p.second_way) return;
      }
      if (p.second_way && b >= low && b < high) put(b, a, k);
      p.second_way = false;
      ++p.at;
    }
  };
  std::vector<loose_entries> from(size);
  exchange_items(comm_, items, item, fill, [&](std::size_t w, std::span<const std::byte> bytes) {
    auto& to = from[w];
    for (std::size_t at = 0; at < bytes.size(); at += item) {
      std::uint32_t r = 0;
      std::uint64_t c = 0;
      std::memcpy(&r, bytes.data() + at, 4);
      std::memcpy(&c, bytes.data() + at + 4, 8);
      to.row.push_back(r);
      to.column.push_back(c);
      if (!valued) continue;
      double v = 0;
      std::memcpy(&v, bytes.data() + at + 12, 8);
      to.value.push_back(v);
    }
  });
  loose_entries all;
  all.valued = valued;
  for (auto& f : from) {
    all.row.insert(all.row.end(), f.row.begin(), f.row.end());
    all.column.insert(all.column.end(), f.column.begin(), f.column.end());
    all.value.insert(all.value.end(), f.value.begin(), f.value.end());
    f = {};
  }
  return all;
}

}  // namespace paracel
