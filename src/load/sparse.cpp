// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/sparse.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "load/entry_reader.hpp"
#include "load/number_set.hpp"
#include "load/numbering.hpp"
#include "load/refuse_twice.hpp"
#include "load/sparse_builder.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

std::uint64_t sum_over_workers(Comm& comm, std::uint64_t mine) {
  auto total = static_cast<std::int64_t>(mine);
  comm.allreduce(total);
  return static_cast<std::uint64_t>(total);
}

}  // namespace

sparse_rows load_sparse(Comm comm, const std::vector<std::string>& files, const entry_options& options) {
  const bool keep_values = options.values != entry_options::value_rule::ignore;
  auto local = read_entries(comm, files, options, {.values = keep_values});
  std::vector<std::uint32_t> weight;
  if (comm.get_size() > 1) {
    weight.assign(local.rows.ids.size(), 1);
    for (const auto& b : local.entries.blocks()) {
      for (std::size_t k = 0; k < b.size; ++k) {
        auto& n = weight[local.rows.place.empty() ? b.row[k] : local.rows.place[b.row[k]]];
        n += n < std::numeric_limits<std::uint32_t>::max() ? 1 : 0;
      }
    }
  }
  auto rows = number_ids(comm, std::move(local.rows.ids), std::move(weight));
  auto columns = number_ids(comm, std::move(local.columns.ids), {});
  index_numbers row_numbers(std::move(local.rows.place), rows);
  index_numbers column_numbers(std::move(local.columns.place), columns);

  sparse_rows out;
  out.row_first = rows.first;
  out.row_ids = std::move(rows.own);
  out.column_first = columns.first;
  out.columns_total = columns.total();
  const auto finish = [&](auto built) {
    number_set used(columns.total());
    for (const auto c : built.column) used.add(c);
    used.count();
    if (used.size() > std::numeric_limits<std::uint32_t>::max()) throw error("more than 4294967295 columns on one worker");
    out.column_number.reserve(used.size());
    used.for_each([&](std::uint64_t c) { out.column_number.push_back(c); });
    out.column = to_places(std::move(built.column), [&](std::uint64_t c) { return used.rank(c); },
                           used.size() == columns.total());
    out.begin = std::move(built.begin);
    out.value = std::move(built.value);
    if (!keep_values) out.value.assign(out.column.size(), 1.0);
  };
  entry_twice twice;
  const build_options build{.duplicates = options.duplicates};
  const bool wide = row_numbers.is_wide || column_numbers.is_wide;
  if (wide) finish(build_rows<std::uint64_t>(comm, out.row_first, local.entries, row_numbers, column_numbers, build, twice));
  else finish(build_rows<std::uint32_t>(comm, out.row_first, local.entries, row_numbers, column_numbers, build, twice));
  if (options.duplicates == duplicate_rule::refuse)
    refuse_twice(comm, twice, out.row_ids, columns, files, options, false);
  out.column_ids = ids_of(comm, columns, out.column_number);
  out.column_share = std::move(columns.own);
  out.entries_total = sum_over_workers(comm, out.column.size());
  return out;
}

id_list all_column_ids(Comm comm, const sparse_rows& rows) { return gather_ids(std::move(comm), rows.column_share); }
id_list all_row_ids(Comm comm, const sparse_rows& rows) { return gather_ids(std::move(comm), rows.row_ids); }

}  // namespace paracel
