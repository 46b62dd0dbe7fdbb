// SPDX-License-Identifier: BSD-3-Clause
#include "load/ids/global_ids.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "core/short_bytes.hpp"
#include "load/chunked_alltoall.hpp"
#include "paracel/error.hpp"
#include "paracel/exchange.hpp"
#include "paracel/free_memory.hpp"

namespace paracel {

namespace {

/// Samples of each worker: the share of one of P workers is then off by at most P / 2000 of it.
constexpr std::size_t samples_of_a_worker = 1000;

bool less(const id_list& a, std::size_t i, const id_list& b, std::size_t j) {
  return a.numeric() ? a.number(i) < b.number(j) : a.name(i) < b.name(j);
}

void append_one(id_list& to, const id_list& from, std::size_t i) {
  if (from.numeric()) to.push_back(from.number(i));
  else to.push_back(from.name(i));
}

std::vector<std::uint32_t> ascending(const id_list& ids) {
  std::vector<std::uint32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return less(ids, a, ids, b); });
  return order;
}

/// One id for each worker but the first, ascending: worker w starts at the w-th one.
id_list splitters(Comm& comm, const id_list& ids, const std::vector<std::uint32_t>& weight) {
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
    // An id that weighs several steps is sampled once for all of them.
    const double steps = step == 0 ? 0 : std::max(1.0, std::floor((seen - taken) / step));
    append_one(mine, ids, i);
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
    // Scan groups of equal ids until the target is in the group; then cut at the nearer end.
    while (at < sorted.size()) {
      std::size_t end = at;
      double group = 0;
      while (end < sorted.size() && !less(all, sorted[at], all, sorted[end])) group += all_weight[sorted[end++]];
      if (before + group / 2 > target || end == sorted.size()) break;
      before += group;
      at = end;
    }
    append_one(cuts, all, sorted[at]);
  }
  return cuts;
}

/// Whether each id is greater than the one before it.
[[maybe_unused]] bool ascends(const id_list& ids) {
  for (std::size_t i = 1; i < ids.size(); ++i) {
    if (!less(ids, i - 1, ids, i)) return false;
  }
  return true;
}

/// How many of the bytes, from the first on, are whole names.
std::size_t whole_names(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  while (bytes.size() - at >= 4) {
    const auto length = load_field<std::uint32_t>(bytes.data() + at);
    if (bytes.size() - at - 4 < length) break;
    at += 4 + std::size_t{length};
  }
  return at;
}

/// Without branches on which list is next, which would often be predicted wrongly.
id_list merge_numbers(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  const auto each = [&](auto&& put) {
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < a.size() && j < b.size()) {
      const auto x = a[i];
      const auto y = b[j];
      put(std::min(x, y));
      i += x <= y ? 1 : 0;
      j += y <= x ? 1 : 0;
    }
    for (; i < a.size(); ++i) put(a[i]);
    for (; j < b.size(); ++j) put(b[j]);
  };
  std::size_t n = 0;
  each([&](std::uint64_t) { ++n; });
  std::vector<std::uint64_t> both(n);
  auto* to = both.data();
  each([&](std::uint64_t id) { *to++ = id; });
  return id_list(std::move(both));
}

id_list merge_two(const id_list& a, const id_list& b) {
  if (a.numeric()) return merge_numbers(a.numbers(), b.numbers());
  auto both = id_list::empty(false);
  // Memory that is never written costs nothing.
  both.reserve(a.size() + b.size(), a.name_bytes() + b.name_bytes());
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() || j < b.size()) {
    const bool from_a = j == b.size() || (i < a.size() && !less(b, j, a, i));
    if (from_a && j < b.size() && !less(a, i, b, j)) ++j;
    if (from_a) append_one(both, a, i++);
    else append_one(both, b, j++);
  }
  return both;
}

/// The union of ascending lists, ascending: merged pairwise.
id_list merged(std::span<const id_list> lists) {
  if (lists.size() == 1) return lists[0];
  if (lists.size() == 2) return merge_two(lists[0], lists[1]);
  const auto half = lists.size() / 2;
  return merge_two(merged(lists.first(half)), merged(lists.subspan(half)));
}

/// Names vary in length: they are sent as a stream of bytes, and a round may end in the middle of a name.
void send_names(Comm& comm, const id_list& ids, const std::vector<std::size_t>& cut, std::vector<std::uint64_t> bytes,
                std::vector<id_list>& got) {
  const auto size = comm.get_size();
  for (std::size_t w = 0; w < size; ++w) bytes[w] += w == comm.get_rank() ? 0 : 4 * (cut[w + 1] - cut[w]);
  std::vector<byte_vector> unsent(size);
  std::vector<byte_vector> unread(size);
  auto next = cut;
  const auto fill = [&](std::size_t w, std::uint64_t n, byte_vector& to) {
    to.swap(unsent[w]);
    unsent[w].clear();
    for (; to.size() < n; ++next[w]) write_ids(to, ids, next[w], next[w] + 1);
    unsent[w].assign(to.begin() + static_cast<std::ptrdiff_t>(n), to.end());
    to.resize(n);
  };
  const auto take = [&](std::size_t w, std::span<const std::byte> more) {
    auto& all = unread[w];
    all.insert(all.end(), more.begin(), more.end());
    const auto whole = whole_names(all);
    read_ids(std::span(all).first(whole), got[w]);
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(whole));
  };
  exchange_items(comm, bytes, 1, fill, take);
  for (const auto& rest : unread) {
    if (!rest.empty()) throw protocol_error("ids from another worker: a name is cut off");
  }
}

/// Sends each worker its ids [cut[w], cut[w + 1]), and returns what arrived from each worker, ascending. Consumes
/// `ids`.
std::vector<id_list> send_ids(Comm& comm, id_list& ids, const std::vector<std::size_t>& cut) {
  const auto size = comm.get_size();
  const bool numeric = ids.numeric();
  const auto self = comm.get_rank();
  std::vector<std::uint64_t> count(size);
  std::vector<std::uint64_t> bytes(size);  // of names
  for (std::size_t w = 0; w < size; ++w) {
    if (w == self || cut[w] == cut[w + 1]) continue;
    count[w] = cut[w + 1] - cut[w];
    if (!numeric) bytes[w] = static_cast<std::uint64_t>(ids.name(cut[w + 1] - 1).end() - ids.name(cut[w]).begin());
  }
  std::vector<id_list> got(size, id_list::empty(numeric));
  const auto counts = comm.allgather(count);
  const auto all_bytes = comm.allgather(bytes);
  for (std::size_t w = 0; w < size; ++w) got[w].reserve(counts[w][self], all_bytes[w][self]);
  if (numeric) {
    auto next = cut;
    exchange_items(
        comm, count, 8,
        [&](std::size_t w, std::uint64_t n, byte_vector& to) {
          const auto some = std::as_bytes(std::span(ids.numbers()).subspan(next[w], n));
          to.assign(some.begin(), some.end());
          next[w] += n;
        },
        [&](std::size_t w, std::span<const std::byte> more) { read_ids(more, got[w]); });
  } else {
    send_names(comm, ids, cut, std::move(bytes), got);
  }
  if (cut[self] == 0 && cut[self + 1] == ids.size()) {
    got[self] = std::move(ids);
  } else {
    for (auto i = cut[self]; i < cut[self + 1]; ++i) append_one(got[self], ids, i);
  }
  ids = id_list::empty(numeric);
  return got;
}

}  // namespace

void write_ids(byte_vector& to, const id_list& ids, std::size_t begin, std::size_t end) {
  for (auto i = begin; i < end; ++i) {
    if (ids.numeric()) {
      put_bytes(to, ids.number(i));
      continue;
    }
    const auto name = ids.name(i);
    put_bytes(to, static_cast<std::uint32_t>(name.size()));
    put_bytes(to, name.data(), name.size());
  }
}

void read_ids(std::span<const std::byte> bytes, id_list& to) {
  if (to.numeric()) {
    std::uint64_t number = 0;
    while (take_fields(bytes, number)) to.push_back(number);
    if (!bytes.empty()) throw protocol_error("ids from another worker: a number is cut off");
    return;
  }
  for (byte_reader in(bytes); !in.empty();) {
    const auto size = in.get<std::uint32_t>();
    to.push_back(std::string_view(reinterpret_cast<const char*>(in.take(size)), size));
  }
}

std::size_t owner_of(std::span<const std::uint64_t> first, std::uint64_t number) noexcept {
  return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end() - 1, number) - first.begin()) - 1;
}

global_ids number_ids(Comm comm, id_list ids, std::vector<std::uint32_t> weight) {
  const auto size = comm.get_size();
  global_ids out;
  if (size == 1) {
    out.first = {0, ids.size()};
    out.own = std::move(ids);
    return out;
  }
  out.own = id_list::empty(ids.numeric());
  const auto brought = ids.size();
  const auto cuts = splitters(comm, ids, weight);
  free_memory(weight);
  out.cut.assign(size + 1, brought);
  out.cut[0] = 0;
  for (std::size_t w = 1; w < size && w <= cuts.size(); ++w) {
    auto low = out.cut[w - 1];
    auto high = brought;
    while (low < high) {
      const auto middle = std::midpoint(low, high);
      if (less(ids, middle, cuts, w - 1)) low = middle + 1;
      else high = middle;
    }
    out.cut[w] = low;
  }
  auto brought_by = send_ids(comm, ids, out.cut);
  out.own = merged(brought_by);
  PARACEL_ASSERT(ascends(out.own));
  out.first.assign(1, 0);
  for (const auto n : comm.allgather(static_cast<std::uint64_t>(out.own.size())))
    out.first.push_back(out.first.back() + n);
  if (out.own.size() > std::numeric_limits<std::uint32_t>::max()) throw error("more than 4294967295 ids of one worker");
  // Both lists are ascending, so that one pass finds all of them.
  std::vector<std::uint64_t> items(size);
  for (std::size_t w = 0; w < size; ++w) items[w] = brought_by[w].size();
  struct position {
    std::size_t i = 0;   // in what a worker sent
    std::size_t at = 0;  // in own
  };
  std::vector<position> positions(size);
  out.place.resize(brought);
  auto next = out.cut;
  exchange_items(
      comm, items, 4,
      [&](std::size_t w, std::uint64_t n, byte_vector& to) {
        const auto& list = brought_by[w];
        auto& [i, at] = positions[w];
        for (; n > 0; --n, ++i) {
          while (less(out.own, at, list, i)) ++at;
          put_bytes(to, static_cast<std::uint32_t>(at));
        }
        if (i == list.size()) brought_by[w] = id_list::empty(list.numeric());
      },
      [&](std::size_t w, std::span<const std::byte> bytes) {
        const auto n = bytes.size() / 4;
        if (bytes.size() % 4 != 0 || n > out.cut[w + 1] - next[w])
          throw protocol_error("numbers of ids: too many of them");
        copy_short(out.place.data() + next[w], bytes.data(), bytes.size());
        next[w] += n;
      });
  for (std::size_t w = 0; w < size; ++w) PARACEL_CHECK(next[w] == out.cut[w + 1]);  // each id has its number
  return out;
}

id_list ids_of(Comm comm, const global_ids& of, std::span<const std::uint64_t> numbers) {
  const auto size = comm.get_size();
  const auto rank = comm.get_rank();
  const std::vector<byte_vector> none(size, byte_vector(exchange_room));
  auto blocks = none;
  for (const auto n : numbers) put_bytes(blocks[owner_of(of.first, n)], n);
  const auto asked = exchange_blocks(comm, blocks, round_bytes);
  blocks = none;
  for (std::size_t w = 0; w < size; ++w) {
    for (const auto n : byte_reader(asked[w], exchange_room).rest<std::uint64_t>()) {
      const auto i = static_cast<std::size_t>(n - of.first[rank]);
      write_ids(blocks[w], of.own, i, i + 1);
    }
  }
  id_list out = id_list::empty(of.own.numeric());
  for (const auto& block : exchange_blocks(comm, blocks, round_bytes))
    read_ids(std::span(block).subspan(exchange_room), out);
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
