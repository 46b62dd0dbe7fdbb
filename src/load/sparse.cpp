// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/sparse.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "load/csr_builder.hpp"
#include "load/duplicate_check.hpp"
#include "load/format/entry_reader.hpp"
#include "load/ids/global_ids.hpp"
#include "load/ids/rank_bitmap.hpp"
#include "load/load_cache.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

std::uint64_t sum_over_workers(Comm& comm, std::uint64_t mine) {
  auto total = static_cast<std::int64_t>(mine);
  comm.allreduce(total);
  return static_cast<std::uint64_t>(total);
}

/// How many entries each id of one side has here, plus 1: what its row costs its owner. `index`: that side of a block.
template <class Index>
std::vector<std::uint32_t> entries_of(chunked_vector& entries, const id_interner::sorted_ids& side, Index index) {
  std::vector<std::uint32_t> weight(side.ids.size(), 1);
  entries.each_block([&](const chunked_vector::view& b) {
    const auto* const i = b.*index;
    for (std::size_t k = 0; k < b.size; ++k) {
      auto& n = weight[side.place.empty() ? i[k] : side.place[i[k]]];
      n += n < std::numeric_limits<std::uint32_t>::max() ? 1 : 0;
    }
  });
  return weight;
}

/// Rows as they were built, with the ids of rows and columns.
template <class Column>
void name_rows(Comm& comm, numbered_rows<Column>&& built, const global_ids& rows, const global_ids& columns,
               bool keep_values, sparse_rows& out) {
  out.row_first = rows.first;
  out.row_ids = rows.own;
  out.column_first = columns.first;
  out.columns_total = columns.total();
  out.column_share = columns.own;
  rank_bitmap used(columns.total());
  for (const auto c : built.column) used.add(c);
  used.count();
  if (used.size() > std::numeric_limits<std::uint32_t>::max())
    throw error("more than 4294967295 columns on one worker");
  out.column_number.reserve(used.size());
  used.for_each([&](std::uint64_t c) { out.column_number.push_back(c); });
  out.column = to_places(
      std::move(built.column), [&](std::uint64_t c) { return used.rank(c); }, used.size() == columns.total());
  out.begin = std::move(built.begin);
  out.value = std::move(built.value);
  if (!keep_values) out.value.assign(out.column.size(), 1.0);
  out.column_ids = ids_of(comm, columns, out.column_number);
  out.entries_total = sum_over_workers(comm, out.column.size());
}

/// `by_column`: the matrix by its columns as well, or null.
sparse_rows load(Comm comm, const std::vector<std::string>& files, const entry_options& options,
                 sparse_rows* by_column) {
  const bool keep_values = options.values != entry_options::value_rule::ignore;
  auto local = read_entries(comm, files, options, {.values = keep_values});
  std::vector<std::uint32_t> row_weight;
  std::vector<std::uint32_t> column_weight;
  if (comm.get_size() > 1) {
    row_weight = entries_of(local.entries, local.rows, &chunked_vector::view::row);
    if (by_column != nullptr) column_weight = entries_of(local.entries, local.columns, &chunked_vector::view::column);
  }
  auto rows = number_ids(comm, std::move(local.rows.ids), std::move(row_weight));
  auto columns = number_ids(comm, std::move(local.columns.ids), std::move(column_weight));
  index_numbers row_numbers(std::move(local.rows.place), rows);
  index_numbers column_numbers(std::move(local.columns.place), columns);
  const bool wide = row_numbers.is_wide || column_numbers.is_wide;
  duplicate_entry twice;
  const auto build = [&](bool swap, const global_ids& own, const global_ids& others, sparse_rows& out) {
    const build_options how{.swap = swap, .keep = by_column != nullptr && !swap, .duplicates = options.duplicates};
    const auto make = [&](auto column) {
      name_rows(comm,
                build_rows<decltype(column)>(comm, own.first, local.entries, row_numbers, column_numbers, how, twice),
                own, others, keep_values, out);
    };
    if (wide) make(std::uint64_t{});
    else make(std::uint32_t{});
  };
  sparse_rows out;
  build(false, rows, columns, out);
  if (options.duplicates == duplicate_rule::refuse)
    duplicate_check(comm, twice, out.row_ids, columns, files, options, entry_role::entries, false);
  if (by_column != nullptr) build(true, columns, rows, *by_column);
  return out;
}

}  // namespace

sparse_rows load_sparse(Comm comm, const std::vector<std::string>& files, const entry_options& options) {
  load_cache cache(comm, options.cache, "matrix", text_of_options(options), files, options.rows_also);
  sparse_rows rows;
  if (cache.read([&](cache_reader& parts) { sparse_rows::visit_parts(parts, rows); })) return rows;
  rows = load(std::move(comm), files, options, nullptr);
  cache.write([&](cache_writer& parts) { sparse_rows::visit_parts(parts, std::as_const(rows)); });
  return rows;
}

sparse_both_ways load_sparse_both_ways(Comm comm, const std::vector<std::string>& files, const entry_options& options) {
  load_cache cache(comm, options.cache, "both", text_of_options(options), files, options.rows_also);
  const auto visit = [](auto& parts, auto& of) {
    sparse_rows::visit_parts(parts, of.rows);
    sparse_rows::visit_parts(parts, of.columns);
  };
  sparse_both_ways m;
  if (cache.read([&](cache_reader& parts) { visit(parts, m); })) return m;
  m = {};
  m.rows = load(std::move(comm), files, options, &m.columns);
  cache.write([&](cache_writer& parts) { visit(parts, std::as_const(m)); });
  return m;
}

id_list all_column_ids(Comm comm, const sparse_rows& rows) { return gather_ids(std::move(comm), rows.column_share); }
id_list all_row_ids(Comm comm, const sparse_rows& rows) { return gather_ids(std::move(comm), rows.row_ids); }

}  // namespace paracel
