// SPDX-License-Identifier: BSD-3-Clause
#include "load/numbering.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>

#include "load/exchange.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

/// Samples of each worker: the share of one of P workers is then off by at most P / 2000 of it.
constexpr std::size_t samples_of_a_worker = 1000;

bool less(const id_list& a, std::size_t i, const id_list& b, std::size_t j) {
  return a.numeric() ? a.number(i) < b.number(j) : a.name(i) < b.name(j);
}

void append(id_list& to, const id_list& from, std::size_t i) {
  if (from.numeric()) to.push_back(from.number(i));
  else to.push_back(from.name(i));
}

std::vector<std::uint32_t> ascending(const id_list& ids) {
  std::vector<std::uint32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return less(ids, a, ids, b); });
  return order;
}

/// One id for each worker but the first, ascending: worker w begins with the w-th one.
id_list splitters(Comm& comm, const id_list& ids, std::span<const std::uint64_t> weight) {
  const auto weight_of = [&](std::size_t i) { return weight.empty() ? 1.0 : static_cast<double>(weight[i]); };
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) total += weight_of(i);
  id_list mine = id_list::empty(ids.numeric());
  std::vector<double> mine_weight;
  const double step = ids.size() <= samples_of_a_worker ? 0 : total / static_cast<double>(samples_of_a_worker);
  double seen = 0;
  double taken = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    seen += weight_of(i);
    if (seen < taken + step / 2) continue;
    // An id that weighs several steps stands for all of them.
    const double steps = step == 0 ? 0 : std::max(1.0, std::floor((seen - taken) / step));
    append(mine, ids, i);
    mine_weight.push_back(step == 0 ? weight_of(i) : step * steps);
    taken += mine_weight.back();
  }
  byte_vector bytes;
  write_ids(bytes, mine, 0, mine.size());
  id_list all = id_list::empty(ids.numeric());
  for (const auto& part : comm.allgather(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())))
    read_ids(std::as_bytes(std::span(part)), all);
  std::vector<double> all_weight;
  for (const auto& part : comm.allgather(mine_weight)) all_weight.insert(all_weight.end(), part.begin(), part.end());

  const auto sorted = ascending(all);
  double sum = 0;
  for (const auto i : sorted) sum += all_weight[i];
  id_list cuts = id_list::empty(ids.numeric());
  const auto size = comm.get_size();
  std::size_t at = 0;
  double before = 0;
  for (std::size_t w = 1; w < size && !sorted.empty(); ++w) {
    const double target = sum * static_cast<double>(w) / static_cast<double>(size);
    // Walk over groups of one id until the target lies in the group; then cut at the nearer end.
    while (at < sorted.size()) {
      std::size_t end = at;
      double group = 0;
      while (end < sorted.size() && !less(all, sorted[at], all, sorted[end])) group += all_weight[sorted[end++]];
      if (before + group / 2 > target || end == sorted.size()) break;
      before += group;
      at = end;
    }
    append(cuts, all, sorted[at]);
  }
  return cuts;
}

/// The union of ascending lists, ascending: two by two.
id_list merged(std::vector<id_list> lists) {
  while (lists.size() > 1) {
    std::vector<id_list> half;
    for (std::size_t l = 0; l < lists.size(); l += 2) {
      if (l + 1 == lists.size()) {
        half.push_back(std::move(lists[l]));
        continue;
      }
      const auto& a = lists[l];
      const auto& b = lists[l + 1];
      auto& both = half.emplace_back(id_list::empty(a.numeric()));
      both.reserve(std::max(a.size(), b.size()));
      std::size_t i = 0;
      std::size_t j = 0;
      while (i < a.size() || j < b.size()) {
        const bool from_a = j == b.size() || (i < a.size() && !less(b, j, a, i));
        if (from_a && j < b.size() && !less(a, i, b, j)) ++j;
        if (from_a) append(both, a, i++);
        else append(both, b, j++);
      }
      lists[l] = lists[l + 1] = id_list();
    }
    lists = std::move(half);
  }
  return std::move(lists.front());
}

}  // namespace

void write_ids(byte_vector& to, const id_list& ids, std::size_t begin, std::size_t end) {
  for (auto i = begin; i < end; ++i) {
    if (ids.numeric()) {
      append_raw(to, ids.number(i));
      continue;
    }
    const auto name = ids.name(i);
    append_raw(to, static_cast<std::uint32_t>(name.size()));
    const auto bytes = std::as_bytes(std::span(name));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
}

void read_ids(std::span<const std::byte> bytes, id_list& to) {
  if (to.numeric()) {
    if (bytes.size() % 8 != 0) throw protocol_error("ids of another worker: a part of a number");
    to.reserve(to.size() + bytes.size() / 8);
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      std::uint64_t number = 0;
      std::memcpy(&number, bytes.data() + at, 8);
      to.push_back(number);
    }
    return;
  }
  while (!bytes.empty()) {
    std::uint32_t size = 0;
    if (bytes.size() < 4) throw protocol_error("ids of another worker: a part of a name");
    std::memcpy(&size, bytes.data(), 4);
    if (bytes.size() - 4 < size) throw protocol_error("ids of another worker: a part of a name");
    to.push_back(std::string_view(reinterpret_cast<const char*>(bytes.data()) + 4, size));
    bytes = bytes.subspan(4 + std::size_t{size});
  }
}

std::size_t owner_of(std::span<const std::uint64_t> first, std::uint64_t number) noexcept {
  return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end() - 1, number) - first.begin()) - 1;
}

numbering number_ids(Comm comm, id_list ids, std::span<const std::uint64_t> weight) {
  const auto size = comm.get_size();
  numbering out;
  if (size == 1) {
    out.first = {0, ids.size()};
    out.own = std::move(ids);
    return out;
  }
  out.own = id_list::empty(ids.numeric());
  const auto cuts = splitters(comm, ids, weight);
  std::vector<std::size_t> cut(size + 1, ids.size());
  cut[0] = 0;
  for (std::size_t w = 1; w < size && w <= cuts.size(); ++w) {
    const auto all = std::views::iota(std::size_t{0}, ids.size());
    cut[w] = static_cast<std::size_t>(std::ranges::partition_point(all, [&](auto i) { return less(ids, i, cuts, w - 1); }) -
                                      all.begin());
  }
  std::vector<byte_vector> blocks(size);
  for (std::size_t w = 0; w < size; ++w) write_ids(blocks[w], ids, cut[w], cut[w + 1]);
  // Every id of this worker is in a block now; from here on only one copy of them is held.
  const auto brought = ids.size();
  ids = id_list::empty(ids.numeric());
  const auto brought_by = [&] {
    std::vector<id_list> lists(size, id_list::empty(ids.numeric()));
    const auto got = exchange_whole(comm, blocks);
    for (auto& b : blocks) b = byte_vector();
    for (std::size_t w = 0; w < size; ++w) read_ids(got[w], lists[w]);
    return lists;
  }();
  out.own = merged(brought_by);
  out.first.assign(1, 0);
  for (const auto n : comm.allgather(static_cast<std::uint64_t>(out.own.size()))) out.first.push_back(out.first.back() + n);
  // Both lists ascend, so that one walk finds all of them. A place fits 4 bytes, or the number of ids could not be kept.
  for (std::size_t w = 0; w < size; ++w) {
    const auto& list = brought_by[w];
    blocks[w].clear();
    blocks[w].reserve(list.size() * 4);
    std::size_t at = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      while (less(out.own, at, list, i)) ++at;
      append_raw(blocks[w], static_cast<std::uint32_t>(at));
    }
  }
  const auto got = exchange_whole(comm, blocks);
  out.number.reserve(brought);
  for (std::size_t w = 0; w < size; ++w) {
    for (const auto place : read_raw<std::uint32_t>(got[w])) out.number.push_back(out.first[w] + place);
  }
  return out;
}

id_list ids_of(Comm comm, const numbering& of, std::span<const std::uint64_t> numbers) {
  const auto size = comm.get_size();
  const auto rank = comm.get_rank();
  std::vector<byte_vector> blocks(size);
  for (const auto n : numbers) append_raw(blocks[owner_of(of.first, n)], n);
  const auto asked = exchange_whole(comm, blocks);
  for (std::size_t w = 0; w < size; ++w) {
    blocks[w].clear();
    for (const auto n : read_raw<std::uint64_t>(asked[w])) {
      const auto i = static_cast<std::size_t>(n - of.first[rank]);
      write_ids(blocks[w], of.own, i, i + 1);
    }
  }
  id_list out = id_list::empty(of.own.numeric());
  for (const auto& block : exchange_whole(comm, blocks)) read_ids(block, out);
  return out;
}

id_list gather_ids(Comm comm, const id_list& mine) {
  byte_vector bytes;
  write_ids(bytes, mine, 0, mine.size());
  id_list all = id_list::empty(mine.numeric());
  for (const auto& part : gather_blocks(comm, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
    read_ids(std::as_bytes(std::span(part)), all);
  return all;
}

}  // namespace paracel
