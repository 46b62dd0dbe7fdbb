// SPDX-License-Identifier: BSD-3-Clause
//
// Samples of a job: what one worker reads, and what the workers then exchange.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <paracel/free_memory.hpp>
#include <paracel/samples.hpp>

#include "load/collective_errors.hpp"
#include "load/format/category_words.hpp"
#include "load/format/class_labels.hpp"
#include "load/format/csr_reader.hpp"
#include "load/format/npy_reader.hpp"
#include "load/format/sample_parser.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"

namespace paracel {

namespace {

// Enough of a file to find its first non-blank line, and to detect its format.
constexpr std::size_t first_read_bytes = std::size_t{64} << 10;

std::string shown(const std::vector<std::string>& names) {
  std::string all;
  for (const auto& n : names) all += (all.empty() ? "" : ", ") + (n == "-" ? std::string("stdin") : n);
  return all;
}

sample_layout sample_layout_of(input_set& input, const std::vector<std::string>& names, const sample_options& options) {
  sample_layout layout;
  for (std::size_t f = 0; f < input.files().size(); ++f) {
    for (std::size_t bytes = first_read_bytes;; bytes *= 2) {
      const auto text = input.head(f, bytes);
      if (find_layout(input.files()[f].shown(), text, options, layout)) return layout;
      if (text.size() < bytes) break;
    }
  }
  throw data_error((input.files().size() == 1 ? input.files()[0].shown() : shown(names)) +
                   ":1:1: found no line, want samples");
}

enum class binary_form { none, npy, csr };
binary_form binary_form_of(const input_file& file) {
  return is_npy(file) ? binary_form::npy : is_csr(file) ? binary_form::csr : binary_form::none;
}

sample_rows read_part(input_set& input, std::size_t rank, std::size_t size, const sample_layout& layout,
                      const sample_options& options, const load_progress& progress) {
  sample_parser parser(layout, options);
  const auto parts = input.parts(rank, size);
  if (layout.header && !parts.empty() && parts.front().begin > 0 &&
      input.blank_before(parts.front().file, parts.front().begin)) {
    parser.expect_header();
  }
  input.visit(
      rank, size, [&](const input_piece& piece) { parser.parse(piece); }, progress);
  return parser.take();
}

/// Checks what only all workers together know.
void check_all(Comm& comm, const std::string& where, const sample_rows& rows, const sample_options& options) {
  if (!options.weight.empty() && !options.without_label) {
    double heaviest = 0;
    for (const double w : rows.weight) heaviest = std::max(heaviest, w);
    comm.allreduce(heaviest, reduce_op::max);
    if (heaviest == 0)
      throw data_error(where + ": found no weight above 0 in field " + options.weight +
                       (rows.dense ? "" : ", index " + std::to_string(std::stoull(options.weight) + 1)) +
                       ", want at least one");
  }
  if (!rows.categorical.empty() && rows.categorical.back() >= rows.columns)
    throw data_error(where + ": found " + std::to_string(rows.columns) + " features, want at least " +
                     std::to_string(rows.categorical.back() + std::uint64_t{1}) + ": that one is categorical");
}

/// If a categorical column has words on one worker, it gets words on every worker, the same ones.
void unite_words(Comm& comm, const std::string& where, sample_rows& rows) {
  std::vector<std::int64_t> some;
  for (const auto c : rows.categorical) some.push_back(rows.words.contains(c) ? 1 : 0);
  if (some.empty()) return;
  comm.allreduce(some, reduce_op::max);
  for (std::size_t k = 0; k < some.size(); ++k) {
    const auto column = rows.categorical[k];
    if (some[k] == 0) continue;
    all_or_throw(comm, [&] {
      if (rows.words.contains(column)) return;
      try {
        integers_to_words(rows, column);
      } catch (const class_labels::refused& e) {
        throw data_error(where + ": " + e.what);
      }
    });
    auto& own = rows.words[column];
    std::vector<double> place(own.size());
    std::iota(place.begin(), place.end(), 0.0);
    own = class_labels::unite(comm.allgather(own), own, place);
    if (own.size() > class_labels::most_classes)
      throw data_error(where + ": found " + std::to_string(own.size()) + " words in categorical feature " +
                       std::to_string(column) + ", want at most " + std::to_string(class_labels::most_classes));
    move_words(rows, column, place);
  }
}

/// libsvm with sample_options::floats: what is not written is 0.
void make_dense(sample_rows& rows) {
  std::vector<float> dense(rows.rows() * rows.columns);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    for (std::size_t k = rows.row_begin[i]; k < rows.row_begin[i + 1]; ++k)
      dense[i * rows.columns + rows.column[k]] = rows.floats[k];
  }
  rows.floats = std::move(dense);
  rows.row_begin = std::vector<std::size_t>{0};
  free_memory(rows.column);
  rows.dense = true;
}

}  // namespace

sample_rows read_samples(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                         const sample_options& options) {
  input_set input(names);
  const auto form = binary_form_of(input.files().front());
  if (form == binary_form::none && input.standard_input() && rank != 0) return {};
  auto rows = form == binary_form::npy ? read_npy(input, rank, size, options, {})
              : form == binary_form::csr
                  ? read_csr(input, rank, size, options)
                  : read_part(input, rank, size, sample_layout_of(input, names, options), options, {});
  if (size == 1 && rows.rows() == 0) throw data_error(shown(names) + no_rows);
  to_signs(shown(names), options, rows);
  return rows;
}

sample_rows load_samples(Comm comm, const std::vector<std::string>& names, const sample_options& options) {
  const auto rank = comm.get_rank();
  input_set input(comm, names);
  sample_layout layout;
  auto form = binary_form::none;
  all_or_throw(comm, [&] {
    form = binary_form_of(input.files().front());
    if (form == binary_form::none && (rank == 0 || !input.standard_input()))
      layout = sample_layout_of(input, names, options);
  });
  if (input.standard_input()) comm.bcast(layout);  // the others cannot read it
  sample_rows rows;
  all_or_throw(comm, [&] {
    const auto watch = report_load_progress(comm, input);
    rows = form == binary_form::npy   ? read_npy(input, rank, comm.get_size(), options, watch)
           : form == binary_form::csr ? read_csr(input, rank, comm.get_size(), options)
                                      : read_part(input, rank, comm.get_size(), layout, options, watch);
  });

  const auto where = shown(names);
  const auto counts = comm.allgather(static_cast<std::uint64_t>(rows.rows()));
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (r < rank) rows.first_row += counts[r];
    rows.rows_total += counts[r];
  }
  if (rows.rows_total == 0) throw data_error(where + no_rows);
  std::vector<std::int64_t> greatest{rows.columns, rows.has_label_zero ? 1 : 0, rows.has_label_minus_one ? 1 : 0};
  comm.allreduce(greatest, reduce_op::max);
  rows.columns = static_cast<std::uint32_t>(greatest[0]);
  rows.has_label_zero = greatest[1] != 0;
  rows.has_label_minus_one = greatest[2] != 0;
  if (rows.has_label_zero && rows.has_label_minus_one)
    throw data_error(where + ": found labels 0 and -1, want 0 and 1, or -1 and +1");
  check_all(comm, where, rows, options);
  if (!rows.dense && options.floats) make_dense(rows);
  if (has_classes(options)) {
    if (options.classes.empty())
      rows.classes = class_labels::unite(comm.allgather(rows.classes), rows.classes, rows.label);
    to_signs(where, options, rows);
  }
  unite_words(comm, where, rows);
  if (rank == 0) report_loaded(comm, names, input, rows.rows_total, rows.columns);
  return rows;
}

std::string place_of_row(const std::vector<std::string>& names, std::uint64_t row, const sample_options& options) {
  input_set input(names);
  const auto number = ": row " + std::to_string(row + 1);
  if (input.standard_input() || binary_form_of(input.files().front()) != binary_form::none)
    return shown(names) + number;
  const auto layout = sample_layout_of(input, names, options);
  const sample_parser parser(layout, options);
  std::string place = shown(names) + number;
  struct found {};
  try {
    input.visit(0, 1, [&](const input_piece& piece) {
      bool header = piece.begins_file() && layout.header;
      for_each_line(piece.text(), [&](std::string_view line, std::size_t) {
        if (!is_row(layout, line) || (std::exchange(header, false) && parser.is_header(piece, line))) return;
        if (row-- > 0) return;
        const auto at = piece.place(line.data());
        place = at.substr(0, at.rfind(':'));
        throw found();
      });
    });
  } catch (const found&) {
  }
  return place;
}

}  // namespace paracel
