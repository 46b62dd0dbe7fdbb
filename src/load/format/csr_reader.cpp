// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/csr_reader.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/format/class_labels.hpp"
#include "load/format/sample_layout.hpp"
#include "paracel/error.hpp"

namespace paracel {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

namespace {

constexpr std::string_view csr_magic("\x93PARCSR1", 8);
constexpr std::uint64_t csr_has_labels = 1;
constexpr std::uint64_t csr_has_groups = 2;

template <class T>
std::vector<T> numbers_at(const input_file& file, std::uint64_t offset, std::uint64_t count) {
  std::vector<T> out(static_cast<std::size_t>(count));
  const auto from = open_source(file, offset);
  for (std::size_t have = 0; have < out.size() * sizeof(T);) {
    const auto n = from->read(reinterpret_cast<char*>(out.data()) + have, out.size() * sizeof(T) - have);
    if (n == 0) throw data_error(file.name + ": became shorter while it was read");
    have += n;
  }
  return out;
}

struct csr_header {
  std::uint64_t rows, columns, entries, parts;
};

/// Where the arrays of a file begin.
struct csr_places {
  std::uint64_t label, group, row_begin, value, column, end;

  explicit csr_places(const csr_header& h) {
    label = csr_magic.size() + sizeof(csr_header);
    group = label + ((h.parts & csr_has_labels) != 0 ? h.rows * 8 : 0);
    row_begin = group + ((h.parts & csr_has_groups) != 0 ? h.rows * 8 : 0);
    value = row_begin + (h.rows + 1) * 8;
    column = value + h.entries * 8;
    end = column + h.entries * 4;
  }
};

csr_header header_of(const input_file& file, const sample_options& options) {
  const auto refuse = [&](const std::string& what) { throw data_error(file.name + ": " + what); };
  const auto front = csr_magic.size() + sizeof(csr_header);
  if (file.bytes < front) refuse("found " + std::to_string(file.bytes) + " bytes, want a header");
  const auto numbers = numbers_at<std::uint64_t>(file, csr_magic.size(), 4);
  const csr_header h{numbers[0], numbers[1], numbers[2], numbers[3]};
  // So that no sum of sizes overflows.
  if (h.rows > file.bytes / 8 || h.entries > file.bytes / 8 || csr_places(h).end != file.bytes)
    refuse("found " + std::to_string(file.bytes) + " bytes, want those of " + std::to_string(h.rows) + " rows and " +
           std::to_string(h.entries) + " entries");
  if (h.rows == 0) refuse(std::string(no_rows).substr(2));
  if (h.columns == 0 || h.columns > options.index_limit)
    refuse("found " + std::to_string(h.columns) + " columns, want 1 to " + std::to_string(options.index_limit));
  if (reads_labels(options) && (h.parts & csr_has_labels) == 0) refuse("found no labels, want them");
  if (!options.group.empty() && (h.parts & csr_has_groups) == 0) refuse("found no groups, want them");
  if (!options.weight.empty()) refuse("has no field for key \"weight\"; want weights in row_weights");
  return h;
}

void read_labels(const input_file& file, const sample_options& options, std::uint64_t first, std::vector<double> labels,
                 sample_rows& to) {
  const auto fail = [&](std::size_t i, const std::string& what) {
    throw data_error(file.name + ":" + std::to_string(first + i + 1) + ": " + what);
  };
  class_labels classes(labels_of(options));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double v = labels[i];
    if (!std::isfinite(v)) fail(i, "found " + number_text(v) + ", want a finite number");
    if (has_classes(options)) {
      try {
        const auto text = number_text(v);
        if (options.label == sample_options::label_rule::binary) note_sign(to, text);
        labels[i] = classes.index(text, true);
      } catch (const class_labels::refused& e) {
        fail(i, e.what);
      }
    } else if (options.label == sample_options::label_rule::relevance && !is_relevance(v)) {
      fail(i, no_relevance(number_text(v)));
    }
  }
  to.label = std::move(labels);
  if (has_classes(options)) to.classes = classes.sort(to.label);
}

}  // namespace

bool is_csr(const input_file& file) {
  if (!file.divisible() || file.bytes < csr_magic.size()) return false;
  const auto front = numbers_at<char>(file, 0, csr_magic.size());
  return std::string_view(front.data(), front.size()) == csr_magic;
}

sample_rows read_csr(const input_set& input, std::size_t rank, std::size_t size, const sample_options& options) {
  const auto& file = input.files().front();
  if (input.files().size() > 1)
    throw data_error(file.name + ": is of binary sparse rows, want it to be the only file of an input");
  const auto h = header_of(file, options);
  const csr_places at(h);
  const auto first = h.rows / size * rank + h.rows % size * rank / size;
  const auto mine = h.rows / size * (rank + 1) + h.rows % size * (rank + 1) / size - first;

  sample_rows rows;
  rows.row_count = static_cast<std::size_t>(mine);
  rows.columns = static_cast<std::uint32_t>(options.columns != 0 ? options.columns : h.columns);
  if (reads_labels(options))
    read_labels(file, options, first, numbers_at<double>(file, at.label + first * 8, mine), rows);
  if (!options.group.empty()) {
    for (const double g : numbers_at<double>(file, at.group + first * 8, mine))
      rows.group.push_back(group_of(number_text(g)));
  }
  const auto begins = numbers_at<std::uint64_t>(file, at.row_begin + first * 8, mine + 1);
  const auto fail = [&](std::size_t row, const std::string& what) {
    throw data_error(file.name + ":" + std::to_string(first + row + 1) + ": " + what);
  };
  if (begins.back() < begins.front() || begins.back() > h.entries) fail(0, "found rows beyond the entries");
  const auto entries = begins.back() - begins.front();
  rows.column = numbers_at<std::uint32_t>(file, at.column + begins.front() * 4, entries);
  rows.value = numbers_at<double>(file, at.value + begins.front() * 8, entries);
  rows.row_begin.reserve(rows.row_count + 1);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rows.row_count; ++i) {
    if (begins[i + 1] < begins[i] || begins[i + 1] > begins.back()) fail(i, "found a row that ends before it begins");
    std::uint64_t next = 0;
    for (auto k = begins[i] - begins[0]; k < begins[i + 1] - begins[0]; ++k) {
      const auto column = rows.column[k];
      if (column < next || column >= h.columns)
        fail(i, "found column " + std::to_string(column) + ", want columns that increase, below " +
                    std::to_string(h.columns));
      if (!std::isfinite(rows.value[k]))
        fail(i,
             "found " + number_text(rows.value[k]) + " in column " + std::to_string(column) + ", want a finite number");
      next = column + std::uint64_t{1};
      if (column >= rows.columns) continue;  // unknown to the model
      rows.column[kept] = column;
      rows.value[kept++] = rows.value[k];
    }
    rows.row_begin.push_back(kept);
  }
  rows.column.resize(kept);
  rows.value.resize(kept);
  if (options.floats) {
    rows.floats.reserve(kept);
    for (const double v : rows.value) rows.floats.push_back(to_float(v));
    rows.value = {};
  }
  return rows;
}

}  // namespace paracel
