// SPDX-License-Identifier: BSD-3-Clause
#include "load/csr_builder.hpp"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "load/chunked_alltoall.hpp"
#include "paracel/error.hpp"

namespace paracel {

index_numbers::index_numbers(std::vector<std::uint32_t>&& place, global_ids& of) : identity(false) {
  if (of.cut.empty()) {
    identity = place.empty();
    narrow = std::move(place);
    return;
  }
  is_wide = of.total() > std::numeric_limits<std::uint32_t>::max();
  auto number = std::exchange(of.place, {});
  const auto for_each_owner = [&](auto&& visit) {
    for (std::size_t w = 0; w + 1 < of.cut.size(); ++w) {
      for (auto i = of.cut[w]; i < of.cut[w + 1]; ++i) visit(i, of.first[w] + number[i]);
    }
  };
  if (!is_wide) {
    for_each_owner([&](std::size_t i, std::uint64_t n) { number[i] = static_cast<std::uint32_t>(n); });
    narrow = std::move(place);
    if (narrow.empty()) narrow = std::move(number);
    else
      for (auto& p : narrow) p = number[p];
    return;
  }
  std::vector<std::uint64_t> of_place(number.size());
  for_each_owner([&](std::size_t i, std::uint64_t n) { of_place[i] = n; });
  if (place.empty()) {
    wide = std::move(of_place);
    return;
  }
  wide.resize(place.size());
  for (std::size_t i = 0; i < place.size(); ++i) wide[i] = of_place[place[i]];
}

namespace {

/// Freed blocks are scattered between others: without this their pages stay resident while the rows grow, a third of
/// the peak.
void give_back() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

/// Rows in groups of adjacent ones, each group small enough to be sorted in the cache.
template <class Column>
class row_buckets {
 public:
  row_buckets(std::size_t rows, std::size_t entries, bool valued) : rows_(rows), valued_(valued) {
    const auto wanted = std::clamp<std::size_t>(entries / entries_of_a_bucket, 1, most_buckets);
    while ((rows_ >> shift_) >= wanted && (rows_ >> shift_) > 0) ++shift_;
    for (std::size_t b = 0; b <= rows_ >> shift_; ++b) buckets_.emplace_back(valued, block_entries);
  }
  void push(std::uint32_t row, Column column, double value) { buckets_[row >> shift_].push(row, column, value); }

  /// Consumes the buckets.
  void build(duplicate_rule rule, numbered_rows<Column>& out, duplicate_entry& twice) {
    out.begin.assign(rows_ + 1, 0);
    std::size_t total = 0;
    for (auto& b : buckets_) total += b.size();
    out.column.reserve(total);
    if (valued_) out.value.reserve(total);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const auto low = b << shift_;
      const auto high = std::min(rows_, (b + 1) << shift_);
      if (low < high) build_bucket(buckets_[b], low, high, rule, out, twice);
      buckets_[b] = basic_entry_store<Column>();
      if (b % (buckets_.size() / 16 + 1) == 0) give_back();
    }
  }

 private:
  // 32768 pairs are 256 KB. More buckets than 512 would be more streams than the TLB covers.
  static constexpr std::size_t entries_of_a_bucket = 32'768;
  static constexpr std::size_t most_buckets = 512;
  static constexpr std::size_t block_entries = 4096;
  // Sorting a bucket by column takes a third of the time of sorting its rows one by one, if it has more entries than
  // digits have values. The copies are at most 16 MB, 32 with values.
  static constexpr unsigned digit_bits = 11;
  static constexpr unsigned most_passes = 3;
  static constexpr std::size_t least_by_column = 8192;
  static constexpr std::size_t most_by_column = std::size_t{1} << 20;

  void build_bucket(basic_entry_store<Column>& from, std::size_t low, std::size_t high, duplicate_rule rule,
                    numbered_rows<Column>& out, duplicate_entry& twice) {
    next_.assign(high - low + 1, 0);
    const auto n = from.size();
    const bool small = n <= most_by_column;  // unpacked once, not in each pass
    if (small) unpack(from, n);
    const auto& whole = by_column_[1];
    const auto each = [&](auto&& visit) {
      if (small) {
        for (std::size_t k = 0; k < n; ++k) visit(whole.row[k], whole.column[k], valued_ ? whole.value[k] : 1);
        return;
      }
      from.each_block([&](const auto& b) {
        for (std::size_t k = 0; k < b.size; ++k) visit(b.row[k], b.column[k], valued_ ? b.value[k] : 1);
      });
    };
    each([&](std::uint32_t row, Column, double) { ++next_[row - low + 1]; });
    std::partial_sum(next_.begin(), next_.end(), next_.begin());
    column_.resize(n);
    if (valued_) value_.resize(n);
    const auto put = [&](std::uint32_t row, Column column, double value) {
      const auto to = next_[row - low]++;
      column_[to] = column;
      if (valued_) value_[to] = value;
    };
    const auto passes = passes_for(n, low, high - low);
    if (passes == 0) each(put);
    else {
      sort_by_column(n, passes);
      const auto& all = by_column_[(passes - 1) % 2];
      for (std::size_t k = 0; k < n; ++k) put(all.row[k], all.column[k], valued_ ? all.value[k] : 1);
    }
    std::size_t begin = 0;
    for (auto r = low; r < high; ++r) {
      const auto end = next_[r - low];
      if (valued_) sort_with_values(begin, end);
      else sort_columns(begin, end);
      const bool distinct =
          rule == duplicate_rule::keep || std::adjacent_find(column_.begin() + static_cast<std::ptrdiff_t>(begin),
                                                             column_.begin() + static_cast<std::ptrdiff_t>(end)) ==
                                              column_.begin() + static_cast<std::ptrdiff_t>(end);
      auto kept = end;
      if (!distinct) {
        if (rule == duplicate_rule::refuse && !twice) {
          const auto at = std::adjacent_find(column_.begin() + static_cast<std::ptrdiff_t>(begin),
                                             column_.begin() + static_cast<std::ptrdiff_t>(end));
          twice = {r, *at};
        }
        kept = merge(begin, end, rule);
      }
      out.column.insert(out.column.end(), column_.begin() + static_cast<std::ptrdiff_t>(begin),
                        column_.begin() + static_cast<std::ptrdiff_t>(kept));
      if (valued_) {
        out.value.insert(out.value.end(), value_.begin() + static_cast<std::ptrdiff_t>(begin),
                         value_.begin() + static_cast<std::ptrdiff_t>(kept));
      }
      out.begin[r + 1] = out.column.size();
      begin = end;
    }
  }

  /// The number of passes in which a bucket's entries are sorted by column before they are divided into rows; 0: its
  /// rows are sorted each by itself, because they are in order already, or few, or the copies would be too large.
  [[nodiscard]] unsigned passes_for(std::size_t n, std::size_t low, std::size_t rows) {
    if (n < least_by_column || n > most_by_column) return 0;
    last_.assign(rows, 0);
    bool ascending = true;
    Column bits = 0;
    const auto& whole = by_column_[1];
    for (std::size_t k = 0; k < n; ++k) bits |= whole.column[k];
    for (std::size_t k = 0; ascending && k < n; ++k) {
      auto& last = last_[whole.row[k] - low];
      ascending = whole.column[k] >= last;
      last = whole.column[k];
    }
    if (ascending) return 0;
    width_ = static_cast<unsigned>(std::bit_width(bits));
    const auto passes = (width_ + digit_bits - 1) / digit_bits;
    return passes <= most_passes ? passes : 0;
  }
  /// Sorts the entries of by_column_[1] by column, stably, into by_column_[(passes - 1) % 2]: by the digits of the
  /// columns, the last one first.
  void sort_by_column(std::size_t n, unsigned passes) {
    const auto digit = (width_ + passes - 1) / passes;
    const auto mask = (Column{1} << digit) - 1;
    for (unsigned p = 0; p < passes; ++p) {
      const auto shift = p * digit;
      const auto& before = by_column_[(p + 1) % 2];
      auto& to = by_column_[p % 2];
      resize(to, n);
      place_.assign((std::size_t{1} << digit) + 1, 0);
      for (std::size_t k = 0; k < n; ++k) ++place_[((before.column[k] >> shift) & mask) + 1];
      std::partial_sum(place_.begin(), place_.end(), place_.begin());
      for (std::size_t k = 0; k < n; ++k) {
        const auto at = place_[(before.column[k] >> shift) & mask]++;
        to.row[at] = before.row[k];
        to.column[at] = before.column[k];
        if (valued_) to.value[at] = before.value[k];
      }
    }
  }

  void sort_columns(std::size_t begin, std::size_t end) {
    const auto first = column_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = column_.begin() + static_cast<std::ptrdiff_t>(end);
    if (!std::is_sorted(first, last)) std::sort(first, last);
  }
  /// Stable: duplicates stay in input order.
  void sort_with_values(std::size_t begin, std::size_t end) {
    const auto n = end - begin;
    auto* const c = column_.data() + begin;
    auto* const v = value_.data() + begin;
    if (std::is_sorted(c, c + n)) return;
    constexpr std::size_t few = 24;
    if (n <= few) {
      for (std::size_t i = 1; i < n; ++i) {
        const auto column = c[i];
        const auto value = v[i];
        auto j = i;
        for (; j > 0 && c[j - 1] > column; --j) {
          c[j] = c[j - 1];
          v[j] = v[j - 1];
        }
        c[j] = column;
        v[j] = value;
      }
      return;
    }
    row_.clear();
    for (std::size_t i = 0; i < n; ++i) row_.push_back({c[i], static_cast<std::uint32_t>(i), v[i]});
    std::ranges::sort(row_, [](const item& a, const item& b) {
      return a.column != b.column ? a.column < b.column : a.order < b.order;
    });
    for (std::size_t i = 0; i < n; ++i) {
      c[i] = row_[i].column;
      v[i] = row_[i].value;
    }
  }
  static double combined(double before, double now, duplicate_rule rule) {
    switch (rule) {
      case duplicate_rule::sum:
        return before + now;
      // Of zeros, the one with a minus is less: the order of duplicates must not matter.
      case duplicate_rule::min:
        return now < before || (now == before && std::signbit(now)) ? now : before;
      case duplicate_rule::max:
        return now > before || (now == before && std::signbit(before)) ? now : before;
      default:
        return now;
    }
  }
  std::size_t merge(std::size_t begin, std::size_t end, duplicate_rule rule) {
    auto to = begin;
    for (auto k = begin; k < end; ++k) {
      if (to > begin && column_[to - 1] == column_[k]) {
        if (valued_) value_[to - 1] = combined(value_[to - 1], value_[k], rule);
        continue;
      }
      column_[to] = column_[k];
      if (valued_) value_[to] = value_[k];
      ++to;
    }
    return to;
  }

  struct item {
    Column column;
    std::uint32_t order;
    double value;
  };
  struct copy {
    std::vector<std::uint32_t> row;
    std::vector<Column> column;
    std::vector<double> value;
  };
  void resize(copy& c, std::size_t n) const {
    c.row.resize(n);
    c.column.resize(n);
    if (valued_) c.value.resize(n);
  }
  /// Moves the entries of a bucket to by_column_[1].
  void unpack(basic_entry_store<Column>& from, std::size_t n) {
    auto& whole = by_column_[1];
    resize(whole, n);
    from.drain_to(whole.row.data(), whole.column.data(), whole.value.data());
  }
  std::size_t rows_;
  bool valued_;
  unsigned shift_ = 0;
  unsigned width_ = 0;  // of the columns of a bucket, in bits
  copy by_column_[2];
  std::vector<std::uint32_t> place_;
  std::vector<Column> last_;
  std::vector<basic_entry_store<Column>> buckets_;
  std::vector<std::size_t> next_;
  std::vector<Column> column_;
  std::vector<double> value_;
  std::vector<item> row_;
};

/// With `once`, chooses the end of an entry that becomes its row: the greater one as often as the smaller, so that rows
/// are balanced as with both ways; the same for (c, a).
void turn_once(std::uint64_t& a, std::uint64_t& c, const build_options& o) {
  if (!o.once) return;
  // Chosen by an index: a branch would be predicted wrongly half of the time.
  const std::uint64_t ends[] = {a, c};
  const std::size_t turned = ((a + c) % 2 == 0) != (a < c) ? 1 : 0;
  a = ends[turned];
  c = ends[1 - turned];
}

/// Calls f(row, column) for each stored form of an entry.
template <class F>
void each_way(std::uint64_t a, std::uint64_t c, const build_options& o, F&& f) {
  if (a == c && !o.self_loops) return;
  turn_once(a, c, o);
  f(a, c);
  if (o.both_ways && a != c) f(c, a);
}

/// Sends entries to the owners of their rows; begin(n) is told how many will arrive, and take(w, row, column, value)
/// gets those of worker w in its order.
/// For each worker the entries are scanned separately, each round from where the last one ended: no extra memory, and
/// one comparison per entry and worker.
template <class Column, class RowOf, class ColumnOf, class Begin, class Take>
void send(Comm& comm, const std::vector<std::uint64_t>& first, chunked_vector& entries, const build_options& o,
          RowOf&& row_of, ColumnOf&& column_of, Begin&& begin, Take&& take) {
  const auto size = comm.get_size();
  const bool valued = entries.valued();
  const std::size_t item = 4 + sizeof(Column) + (valued ? 8 : 0);
  std::vector<std::uint64_t> items(size);
  entries.each_block([&](const chunked_vector::view& b) {
    for (std::size_t k = 0; k < b.size; ++k) {
      each_way(row_of(b, k), column_of(b, k), o, [&](std::uint64_t a, std::uint64_t) {
        std::size_t owner = 0;
        for (std::size_t w = 1; w < size; ++w) owner += a >= first[w] ? 1 : 0;
        ++items[owner];
      });
    }
  });
  struct position {
    std::size_t block = 0;
    std::size_t k = 0;
    bool second_way = false;  // the first direction of that entry has been sent
    std::uint64_t left = 0;
  };
  std::vector<position> positions(size);
  for (std::size_t w = 0; w < size; ++w) positions[w].left = items[w];
  std::size_t dropped = 0;
  chunked_vector::room room;
  chunked_vector::view b;
  std::size_t unpacked = std::numeric_limits<std::size_t>::max();  // the number of block b

  const auto fill = [&](std::size_t w, std::uint64_t n, byte_vector& out) {
    auto& p = positions[w];
    const auto low = first[w];
    const auto rows = first[w + 1] - low;
    p.left -= n;
    out.resize(n * item);
    auto* to = out.data();
    const auto* const end = to + out.size();
    while (to != end) {
      if (p.block != unpacked) b = entries.block(p.block - dropped, room);
      unpacked = p.block;
      // In local variables, as what is written to bytes might be anything else to the compiler. Every entry is written,
      // and the next one overwrites it if it is another worker's: whose it is changes from one to the next, so that a
      // branch would often be predicted wrongly.
      const auto from = b;
      const auto how = o;
      const bool with_values = valued;
      const auto item_bytes = item;
      auto k = p.k;
      bool second_way = p.second_way;
      const auto put = [&](std::uint64_t row, std::uint64_t column) {
        auto* const rest = store_fields(to, static_cast<std::uint32_t>(row - low), static_cast<Column>(column));
        if (with_values) store_fields(rest, from.value[k]);
        to += item_bytes & (std::size_t{0} - (row - low < rows ? 1 : 0));
      };
      for (; k < from.size && to != end; ++k) {
        std::uint64_t a = row_of(from, k);
        std::uint64_t c = column_of(from, k);
        if (a == c && !how.self_loops) continue;
        turn_once(a, c, how);
        if (!second_way) put(a, c);
        if (!how.both_ways || a == c) continue;
        second_way = to == end;
        if (second_way) break;
        put(c, a);
      }
      p.k = k;
      p.second_way = second_way;
      if (p.k == b.size) {
        ++p.block;
        p.k = 0;
      }
    }
    if (o.keep) return;
    std::size_t needed = dropped + entries.blocks();
    for (const auto& q : positions) {
      if (q.left > 0) needed = std::min(needed, q.block);
    }
    for (; dropped < needed; ++dropped) entries.drop_front();
  };
  std::uint64_t arriving = 0;
  for (const auto& of : comm.allgather(items)) arriving += of[comm.get_rank()];
  begin(arriving);
  exchange_items(comm, items, item, fill, [&](std::size_t w, std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += item) {
      std::uint32_t r = 0;
      Column c = 0;
      double v = 1;
      const auto* value = load_fields(bytes.data() + at, r, c);
      if (valued) load_fields(value, v);
      take(w, r, c, v);
    }
  });
}

/// Whether rows are the same for any order of the entries: nothing distinguishes duplicates, or one is chosen by its
/// value.
bool any_order(duplicate_rule rule, bool valued) {
  return !valued || rule == duplicate_rule::min || rule == duplicate_rule::max;
}

void release(index_numbers& rows, index_numbers& columns) {
  // Not copied from one another: a copy would keep its memory. They may be the same object.
  rows = index_numbers();
  columns = index_numbers();
}

/// Replaces indices by numbers.
void translate(chunked_vector& entries, index_numbers& rows, index_numbers& columns) {
  const auto one = [](const index_numbers& numbers, std::uint32_t* i, std::size_t n) {
    if (numbers.identity) return;
    for (std::size_t k = 0; k < n; ++k) i[k] = numbers.narrow[i[k]];
  };
  if (!rows.identity || !columns.identity) {
    entries.change_blocks([&](const chunked_vector::view& b) {
      one(rows, b.row, b.size);
      one(columns, b.column, b.size);
    });
  }
  release(rows, columns);
}

}  // namespace

template <class Column>
numbered_rows<Column> build_rows(Comm comm, const std::vector<std::uint64_t>& first, chunked_vector& entries,
                                 index_numbers& row_numbers, index_numbers& column_numbers,
                                 const build_options& options, duplicate_entry& twice) {
  const auto rank = comm.get_rank();
  const auto rows = static_cast<std::size_t>(first[rank + 1] - first[rank]);
  if (rows > std::numeric_limits<std::uint32_t>::max()) throw error("more than 4294967295 rows on one worker");
  const bool wide = row_numbers.is_wide || column_numbers.is_wide;
  const bool alone = comm.get_size() == 1;
  // Alone, entries that are read once are translated as they are read.
  const bool translated = !wide && (!alone || options.keep);
  if (translated) translate(entries, row_numbers, column_numbers);
  const auto in_row = [](const chunked_vector::view& b, std::size_t k) { return std::uint64_t{b.row[k]}; };
  const auto in_column = [](const chunked_vector::view& b, std::size_t k) { return std::uint64_t{b.column[k]}; };

  const auto run = [&](auto&& row_of, auto&& column_of) {
    numbered_rows<Column> out;
    if (alone) {
      row_buckets<Column> buckets(rows, entries.size() * (options.both_ways ? 2 : 1), entries.valued());
      const auto split = [&](const chunked_vector::view& b) {
        for (std::size_t k = 0; k < b.size; ++k) {
          each_way(row_of(b, k), column_of(b, k), options, [&](std::uint64_t a, std::uint64_t c) {
            buckets.push(static_cast<std::uint32_t>(a), static_cast<Column>(c), entries.valued() ? b.value[k] : 1);
          });
        }
      };
      if (options.keep) entries.each_block(split);
      else entries.drain_blocks(split);
      if (!options.keep) release(row_numbers, column_numbers);
      buckets.build(options.duplicates, out, twice);
      return out;
    }
    const bool valued = entries.valued();
    std::optional<row_buckets<Column>> buckets;
    const auto begin = [&](std::uint64_t n) { buckets.emplace(rows, n, valued); };
    if (any_order(options.duplicates, valued)) {
      const auto take = [&](std::size_t, std::uint32_t row, Column column, double value) {
        buckets->push(row, column, value);
      };
      send<Column>(comm, first, entries, options, row_of, column_of, begin, take);
    } else {
      std::vector<basic_entry_store<Column>> from;
      for (std::size_t w = 0; w < comm.get_size(); ++w) from.emplace_back(valued);
      const auto take = [&](std::size_t w, std::uint32_t row, Column column, double value) {
        from[w].push(row, column, value);
      };
      send<Column>(comm, first, entries, options, row_of, column_of, begin, take);
      for (auto& f : from) {
        f.drain_blocks([&](const auto& b) {
          for (std::size_t k = 0; k < b.size; ++k) buckets->push(b.row[k], b.column[k], valued ? b.value[k] : 1);
        });
      }
    }
    buckets->build(options.duplicates, out, twice);
    return out;
  };
  const auto both = [&](auto&& row_of, auto&& column_of) {
    return options.swap ? run(column_of, row_of) : run(row_of, column_of);
  };
  if (translated) return both(in_row, in_column);
  return both([&](const chunked_vector::view& b, std::size_t k) { return row_numbers[b.row[k]]; },
              [&](const chunked_vector::view& b, std::size_t k) { return column_numbers[b.column[k]]; });
}

template numbered_rows<std::uint32_t> build_rows(Comm, const std::vector<std::uint64_t>&, chunked_vector&,
                                                 index_numbers&, index_numbers&, const build_options&,
                                                 duplicate_entry&);
template numbered_rows<std::uint64_t> build_rows(Comm, const std::vector<std::uint64_t>&, chunked_vector&,
                                                 index_numbers&, index_numbers&, const build_options&,
                                                 duplicate_entry&);

}  // namespace paracel
