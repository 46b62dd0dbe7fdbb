// SPDX-License-Identifier: BSD-3-Clause
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/dense_rows.hpp>

#include "load/chunked_alltoall.hpp"
#include "load/collective_errors.hpp"
#include "load/format/vector_parser.hpp"
#include "load/ids/global_ids.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"
#include "paracel/error.hpp"

namespace paracel {

vector_rows load_vectors(Comm comm, const std::vector<std::string>& files, const vector_options& options) {
  vector_parser parser(options.columns);
  input_set input(comm, files);
  all_or_throw(comm, [&] {
    input.visit(
        comm.get_rank(), comm.get_size(), [&](const input_piece& piece) { parser.parse(piece); },
        report_load_progress(comm, input));
  });
  // The lowest rank with a row decides the width; the others must match it.
  const auto widths = comm.allgather(std::uint64_t{parser.first_place().empty() ? 0 : parser.columns()});
  const auto places = comm.allgather(parser.first_place());
  vector_rows rows;
  for (std::size_t r = 0; r < widths.size(); ++r) {
    if (rows.columns == 0) rows.columns = widths[r];
    if (widths[r] != 0 && widths[r] != rows.columns) {
      throw data_error(places[r] + ": found " + std::to_string(widths[r]) + " numbers, want " +
                       std::to_string(rows.columns));
    }
  }
  if (rows.columns == 0) throw data_error(files.front() + ":1:1: found no line, want an id and numbers");
  std::int64_t named = parser.numeric() ? 0 : 1;
  comm.allreduce(named, reduce_op::max);
  rows.ids = parser.ids(named == 0);
  rows.value = std::move(parser.value());
  const auto counts = comm.allgather(std::uint64_t{rows.rows()});
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (r < comm.get_rank()) rows.first_row += counts[r];
    rows.rows_total += counts[r];
  }
  if (!options.everywhere || comm.get_size() == 1) return rows;

  auto all = vector_rows{gather_ids(comm, rows.ids), rows.columns, {}, 0, rows.rows_total};
  all.value.reserve(rows.rows_total * rows.columns);
  const std::string_view mine(reinterpret_cast<const char*>(rows.value.data()), rows.value.size() * sizeof(double));
  for (const auto& part : gather_blocks(comm, mine)) {
    const auto values = byte_reader(std::as_bytes(std::span(part))).rest<double>();
    all.value.insert(all.value.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace paracel
