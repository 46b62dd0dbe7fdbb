// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/sparse.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/text_number.hpp"
#include "load/entry_reader.hpp"
#include "load/numbering.hpp"
#include "load/sparse_builder.hpp"
#include "load/together.hpp"
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
  auto entries = read_entries(comm, files, options, true, false, true);
  std::vector<std::uint64_t> weight(entries.rows.size(), 1);
  for (const auto r : entries.row) ++weight[r];
  auto rows = number_ids(comm, entries.rows.ids(), weight);
  const auto columns = number_ids(comm, entries.columns.ids(), {});
  entry_sender sender(comm, rows.first);
  entry_sender::stream stream;
  stream.row = entries.row;
  stream.column = entries.column;
  stream.value = entries.value;
  stream.valued = true;
  stream.row_number = rows.number;
  stream.column_number = columns.number;
  const auto loose = sender.send(stream);
  entries = {};

  numbered_rows built;
  together(comm, [&] {
    if (const auto twice = build_rows(rows.own.size(), loose, options.duplicates, built))
      throw data_error(files[0] + ": found two entries of row " + shown(rows.own.text(twice->first)) + " in one column");
  });
  sparse_rows out;
  out.row_first = rows.first;
  out.row_ids = std::move(rows.own);
  out.begin = std::move(built.begin);
  out.value = std::move(built.value);
  out.columns_total = columns.total();
  out.entries_total = sum_over_workers(comm, built.column.size());
  out.column_number = built.column;
  std::ranges::sort(out.column_number);
  out.column_number.erase(std::ranges::unique(out.column_number).begin(), out.column_number.end());
  out.column_ids = ids_of(comm, columns, out.column_number);
  out.column.reserve(built.column.size());
  for (const auto c : built.column) {
    const auto at = std::ranges::lower_bound(out.column_number, c);
    out.column.push_back(static_cast<std::uint32_t>(at - out.column_number.begin()));
  }
  out.column_first = columns.first;
  out.column_share = columns.own;
  return out;
}

id_list all_column_ids(Comm comm, const sparse_rows& rows) { return gather_ids(std::move(comm), rows.column_share); }
id_list all_row_ids(Comm comm, const sparse_rows& rows) { return gather_ids(std::move(comm), rows.row_ids); }

}  // namespace paracel
