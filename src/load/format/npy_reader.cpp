// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/npy_reader.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/format/class_labels.hpp"
#include "load/format/missing_values.hpp"
#include "load/format/sample_layout.hpp"
#include "paracel/detail/bytes.hpp"
#include "paracel/error.hpp"
#include "paracel/npy_header.hpp"

namespace paracel {

static_assert(std::endian::native == std::endian::little, "numbers of an .npy file are copied as they are");

namespace {

constexpr std::size_t npy_front_bytes = std::size_t{64} << 10;
// Numbers converted at once.
constexpr std::size_t block_bytes = std::size_t{256} << 10;
// Beyond it adjacent integers become the same double.
constexpr std::int64_t exact_limit = std::int64_t{1} << 53;

__extension__ using wide = unsigned __int128;

std::string npy_bytes(const input_file& file, std::size_t bytes) {
  const auto from = open_source(file);
  std::string front(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const auto n = from->read(front.data() + have, bytes - have);
    if (n == 0) break;
    have += n;
  }
  front.resize(have);
  return front;
}

/// Receives the numbers, row by row.
class npy_rows {
 public:
  npy_rows(const std::string& file, const npy_matrix& header, const sample_options& options, sample_rows& to,
           class_labels& classes)
      : file_(file), header_(header), options_(options), missing_(options), to_(to), classes_(classes) {
    const auto refuse = [&](const std::string& what) { throw data_error(file + ": " + what); };
    if (header.columns >= sample_role::is_group)
      refuse("found " + std::to_string(header.columns) + " columns, want at most " +
             std::to_string(sample_role::is_group - 1));
    const std::uint64_t others =
        (reads_labels(options) ? 1U : 0U) + (options.weight.empty() ? 0U : 1U) + (options.group.empty() ? 0U : 1U);
    if (header.columns <= others)
      refuse((header.columns == 1 ? "found one column" : "found " + std::to_string(header.columns) + " columns") +
             ", want features" + (options.weight.empty() ? "" : ", a weight") +
             (options.group.empty() ? "" : ", a group") + (reads_labels(options) ? " and a label" : ""));
    sample_layout layout;
    layout.format = sample_format::npy;
    layout.fields = header.columns;
    layout.place = file;
    auto wanted = options;
    if (wanted.columns == 0) wanted.columns = to.columns;  // of the files before
    auto plan = plan_fields(layout, wanted);
    role_ = std::move(plan.role);
    to.columns = plan.columns;
    to.fields = std::move(plan.fields);
    to.categorical = std::move(plan.categorical);
    row_.resize(to.columns);
  }

  void take(const std::byte* row_bytes, std::uint64_t row) {
    for (std::uint64_t c = 0; c < header_.columns; ++c) {
      const auto role = role_[c];
      if (role == not_read) continue;
      const double v = number(row_bytes + c * header_.width, row, c, is_feature(role) && options_.missing);
      if (is_feature(role)) row_[role] = missing_.read(v);
      else if (role == is_weight) weight(v, row, c);
      else if (role == is_group) to_.group.push_back(group_of(number_text(v)));
      else label(v, row, c);
    }
    for (const auto column : to_.categorical) {
      if (!is_category(row_[column])) fail(row, to_.fields.features[column], no_category(number_text(row_[column])));
    }
    if (options_.floats) std::ranges::transform(row_, std::back_inserter(to_.floats), to_float);
    else to_.value.insert(to_.value.end(), row_.begin(), row_.end());
    ++to_.row_count;
  }

 private:
  [[noreturn]] void fail(std::uint64_t row, std::uint64_t column, const std::string& what) const {
    throw data_error(file_ + ":" + std::to_string(row + 1) + ":" + std::to_string(column + 1) + ": " + what);
  }
  double number(const std::byte* from, std::uint64_t row, std::uint64_t column, bool missing = false) const {
    if (header_.kind == 'i') {
      const std::int64_t v = header_.width == 4 ? load_field<std::int32_t>(from) : load_field<std::int64_t>(from);
      if (v > exact_limit || v < -exact_limit)
        fail(row, column,
             "found " + std::to_string(v) + ", want an integer of at most 2^53, which a double represents exactly");
      return static_cast<double>(v);
    }
    const double v = header_.width == 4 ? static_cast<double>(load_field<float>(from)) : load_field<double>(from);
    if (!std::isfinite(v) && !(missing && std::isnan(v)))
      fail(row, column, "found " + number_text(v) + ", want a finite number");
    return v;
  }
  void weight(double v, std::uint64_t row, std::uint64_t column) {
    if (v < 0) fail(row, column, "found " + number_text(v) + ", want a weight of 0 or more");
    to_.weight.push_back(v);
  }
  void label(double v, std::uint64_t row, std::uint64_t column) {
    if (has_classes(options_)) {
      try {
        const auto text = number_text(v);
        if (options_.label == sample_options::label_rule::binary) note_sign(to_, text);
        v = classes_.index(text, true);
      } catch (const class_labels::refused& e) {
        fail(row, column, e.what);
      }
    } else if (options_.label == sample_options::label_rule::relevance && !is_relevance(v)) {
      fail(row, column, no_relevance(number_text(v)));
    }
    to_.label.push_back(v);
  }

  const std::string& file_;
  npy_matrix header_;
  const sample_options& options_;
  const missing_values missing_;
  sample_rows& to_;
  class_labels& classes_;
  std::vector<std::uint32_t> role_;  // by column
  std::vector<double> row_;          // features
};

}  // namespace

npy_matrix read_npy_matrix(const std::string& file, std::string_view front, std::uint64_t bytes) {
  const auto refuse = [&](const std::string& what) { throw data_error(file + ": " + what); };
  if (!front.starts_with(npy_magic)) refuse("found no .npy header, want one: the first file is an .npy file");
  const auto found = read_npy_header(file, front);
  if (found.type != "<f8" && found.type != "<f4" && found.type != "<i8" && found.type != "<i4")
    refuse("found numbers of type " + quote_for_error(found.type) + ", want <f8, <f4, <i8 or <i4");
  npy_matrix out;
  out.data_begin = found.data_begin;
  out.kind = found.type[1];
  out.width = static_cast<std::uint64_t>(found.type[2] - '0');
  const auto& shape = found.shape;
  if (shape.empty() || shape.size() > 2)
    refuse("found an array of " + std::to_string(shape.size()) + " dimensions, want 1 or 2");
  out.rows = shape[0];
  out.columns = shape.size() == 2 ? shape[1] : 1;
  if (found.fortran_order && shape.size() == 2 && out.rows > 1 && out.columns > 1)
    refuse("found an array in column order (fortran_order), want row order");
  if (out.columns == 0) refuse("found rows without columns");
  const auto have = bytes - out.data_begin;
  const auto row_bytes = static_cast<wide>(out.columns) * out.width;
  if (row_bytes * out.rows != have)
    refuse("found " + std::to_string(have) + " bytes of numbers, want " + std::to_string(out.rows) + " rows of " +
           std::to_string(out.columns) + " numbers of " + std::to_string(out.width) + " bytes");
  return out;
}

std::string npy_front(const input_file& file) { return npy_bytes(file, npy_front_bytes); }

bool is_npy(const input_file& file) { return file.divisible() && npy_bytes(file, npy_magic.size()) == npy_magic; }

sample_rows read_npy(const input_set& input, std::size_t rank, std::size_t size, const sample_options& options,
                     const load_progress& progress) {
  // Every rank reads every header, so that all find the same widths and the same errors.
  sample_rows rows;
  rows.dense = true;
  class_labels classes(labels_of(options));
  std::vector<npy_matrix> headers;
  std::uint64_t all_rows = 0;
  for (const auto& file : input.files()) {
    headers.push_back(read_npy_matrix(file.shown(), file.divisible() ? npy_front(file) : "", file.bytes));
    all_rows += headers.back().rows;
    // Without rows the number of columns is not limited by the size of the file.
    if (headers.back().rows > 0) const npy_rows checked(file.name, headers.back(), options, rows, classes);
  }
  if (all_rows == 0) throw data_error(input.files().front().name + no_rows);

  const auto parts = input.parts(rank, size);
  const auto first_row_at = [&](const npy_matrix& h, std::uint64_t offset) {
    const auto stride = h.columns * h.width;
    const auto into = offset <= h.data_begin ? 0 : offset - h.data_begin;
    return std::min(h.rows, into / stride + (into % stride != 0 ? 1 : 0));
  };
  std::uint64_t mine = 0;
  for (const auto& p : parts) mine += first_row_at(headers[p.file], p.end) - first_row_at(headers[p.file], p.begin);
  const auto entries = static_cast<std::size_t>(mine) * rows.columns;
  if (options.floats) rows.floats.reserve(entries);
  else rows.value.reserve(entries);

  std::uint64_t total = 0;
  for (const auto& p : parts) total += p.end - p.begin;
  std::uint64_t done = 0;
  for (const auto& p : parts) {
    const auto& h = headers[p.file];
    const auto stride = static_cast<std::size_t>(h.columns * h.width);
    const auto last = first_row_at(h, p.end);
    auto row = first_row_at(h, p.begin);
    if (row == last) continue;
    npy_rows to(input.files()[p.file].name, h, options, rows, classes);
    const auto from = open_source(input.files()[p.file], h.data_begin + row * stride);
    std::vector<char> block(std::max<std::size_t>(1, block_bytes / stride) * stride);
    while (row < last) {
      const auto want = std::min<std::uint64_t>(block.size() / stride, last - row) * stride;
      std::size_t have = 0;
      while (have < want) {
        const auto n = from->read(block.data() + have, static_cast<std::size_t>(want) - have);
        have += n;
      }
      for (std::size_t at = 0; at < have; at += stride) to.take(std::as_bytes(std::span(block)).data() + at, row++);
      if (progress) progress(done + h.data_begin + row * stride - p.begin, total);
    }
    from->verify();
    done += p.end - p.begin;
  }
  if (has_classes(options)) rows.classes = classes.sort(rows.label);
  return rows;
}

}  // namespace paracel
