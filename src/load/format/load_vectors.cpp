// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/dense_rows.hpp>

#include "core/number_parsing.hpp"
#include "load/chunked_alltoall.hpp"
#include "load/collective_errors.hpp"
#include "load/format/vector_parser.hpp"
#include "load/ids/global_ids.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

vector_layout agreed_layout(Comm& comm, input_set& input, const vector_options& options) {
  vector_layout layout;
  all_or_throw(comm, [&] {
    if (comm.get_rank() != 0) return;
    std::vector<std::string> names;
    for (const auto& f : input.files()) names.push_back(f.shown());
    const auto head = [&](std::size_t file, std::size_t bytes, std::uint64_t& offset) {
      return input.head(file, bytes, &offset);
    };
    layout = find_vector_layout(names, head, options);
  });
  auto said = layout.header;
  said.push_back(layout.columns);
  comm.bcast(said);
  layout.columns = said.back();
  said.pop_back();
  layout.header = std::move(said);
  return layout;
}

/// Fails the load, on every worker, if an id occurs twice.
void refuse_duplicates(Comm& comm, const std::vector<std::string>& files, const vector_options& options,
                       const vector_layout& layout, const vector_rows& rows) {
  const auto all = gather_ids(comm, rows.ids);
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto less = [&](std::size_t a, std::size_t b) {
    return all.numeric() ? all.number(a) < all.number(b) : all.name(a) < all.name(b);
  };
  std::ranges::stable_sort(order, less);
  auto second = all.size();
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (!less(order[i - 1], order[i])) second = std::min(second, order[i]);
  }
  if (second == all.size()) return;
  const auto what =
      "found the id " + quote_for_error(all.text(second)) + " of an earlier row, want a different id for each row";
  input_set input(comm, files);
  if (input.standard_input()) throw data_error(files.front() + ": " + what);
  all_or_throw(comm, [&] {
    if (second < rows.first_row || second >= rows.first_row + rows.rows()) return;
    vector_parser parser(options, layout);
    parser.refuse_row(second - rows.first_row, what);
    input.visit(comm.get_rank(), comm.get_size(), [&](const input_piece& piece) { parser.parse(piece); });
  });
}

}  // namespace

vector_rows load_vectors(Comm comm, const std::vector<std::string>& files, const vector_options& options) {
  input_set input(comm, files);
  const auto layout = agreed_layout(comm, input, options);
  vector_parser parser(options, layout);
  all_or_throw(comm, [&] {
    input.visit(
        comm.get_rank(), comm.get_size(), [&](const input_piece& piece) { parser.parse(piece); },
        report_load_progress(comm, input));
  });
  vector_rows rows;
  rows.columns = layout.columns;
  const auto counts = comm.allgather(std::uint64_t{parser.rows()});
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (r < comm.get_rank()) rows.first_row += counts[r];
    rows.rows_total += counts[r];
  }
  if (rows.rows_total == 0) throw data_error(no_vectors(files.front(), options));
  if (options.with_ids) {
    std::int64_t named = parser.numeric() ? 0 : 1;
    comm.allreduce(named, reduce_op::max);
    rows.ids = parser.ids(named == 0);
    if (options.distinct_ids) refuse_duplicates(comm, files, options, layout, rows);
  } else {
    std::vector<std::uint64_t> numbers(parser.rows());
    std::iota(numbers.begin(), numbers.end(), rows.first_row);
    rows.ids = id_list(std::move(numbers));
  }
  rows.value = std::move(parser.value());
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
