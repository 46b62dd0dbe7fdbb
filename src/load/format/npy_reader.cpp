// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/npy_reader.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/format/class_labels.hpp"
#include "load/format/sample_layout.hpp"
#include "paracel/bytes.hpp"
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

std::string front_of(const input_file& file, std::size_t bytes) {
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
      : file_(file), header_(header), options_(options), to_(to), classes_(classes) {
    labelled_ = reads_labels(options);
    const auto refuse = [&](const std::string& what) { throw data_error(file + ": " + what); };
    if (!options.target.empty() || !options.features.empty())
      refuse("found an .npy file, want a file whose header names " +
             quote_for_error(options.target.empty() ? options.features.front() : options.target));
    const auto fields = header.columns - (labelled_ ? 1 : 0);
    const auto numbered = fields == 0 ? numbered_fields() : find_numbered_fields(file, options, fields);
    weight_ = numbered.weight.value_or(UINT64_MAX);
    group_ = numbered.group.value_or(UINT64_MAX);
    to.categorical = numbered.categorical;
    for (const auto c : to.categorical) categorical_field_.push_back(numbered.field_of(c));
    others_ = (labelled_ ? 1U : 0U) + (numbered.weight ? 1U : 0U) + (numbered.group ? 1U : 0U);
    const std::uint64_t features = header.columns - others_;
    const auto extra = options.without_label && options.label != sample_options::label_rule::none ? 1U : 0U;
    std::uint64_t want = to.columns != 0 ? to.columns : options.columns;
    if (want == 0) want = features;
    if (features == 0)
      refuse((header.columns == 1 ? "found one column" : "found " + std::to_string(header.columns) + " columns") +
             ", want features" + (numbered.weight ? ", a weight" : "") + (numbered.group ? ", a group" : "") +
             (labelled_ ? " and a label" : ""));
    if (features != want && features != want + extra)
      refuse("found " + std::to_string(header.columns) + " columns, want " + std::to_string(want + others_));
    if (want > UINT32_MAX)
      refuse("found " + std::to_string(want) + " columns, want at most " + std::to_string(UINT32_MAX));
    to.columns = static_cast<std::uint32_t>(want);
  }

  void take(const std::byte* row_bytes, std::uint64_t row) {
    std::uint64_t features = 0;
    for (std::uint64_t c = 0; c < header_.columns; ++c) {
      const auto* const from = row_bytes + c * header_.width;
      if (c == weight_) {
        weight(number(from, row, c), row, c);
      } else if (c == group_) {
        to_.group.push_back(group_of(number_text(number(from, row, c))));
      } else if (labelled_ && c + 1 == header_.columns) {
        label(number(from, row, c), row, c);
      } else if (features < to_.columns) {
        const double v = number(from, row, c, options_.missing);
        if (options_.floats) to_.floats.push_back(to_float(v));
        else to_.value.push_back(v);
        ++features;
      }
    }
    for (std::size_t k = 0; k < categorical_field_.size(); ++k) {
      const auto at = to_.row_count * to_.columns + to_.categorical[k];
      const double v = options_.floats ? static_cast<double>(to_.floats[at]) : to_.value[at];
      if (!is_category(v)) fail(row, categorical_field_[k], no_category(number_text(v)));
    }
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
    if (options_.label == sample_options::label_rule::binary) {
      if (v != 0 && v != 1) fail(row, column, "found label " + number_text(v) + ", want 0 or 1");
      to_.has_label_zero = to_.has_label_zero || v == 0;
      v = v == 0 ? -1 : 1;
    } else if (options_.label == sample_options::label_rule::classes) {
      try {
        v = classes_.index(number_text(v), true);
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
  sample_rows& to_;
  class_labels& classes_;
  bool labelled_;
  std::uint64_t weight_;  // a column
  std::uint64_t group_;   // another one
  std::uint32_t others_;  // columns that are no features
  std::vector<std::uint64_t> categorical_field_;
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

bool is_npy(const input_file& file) { return file.divisible() && front_of(file, npy_magic.size()) == npy_magic; }

sample_rows read_npy(const input_set& input, std::size_t rank, std::size_t size, const sample_options& options,
                     const load_progress& progress) {
  // Every rank reads every header, so that all find the same widths and the same errors.
  sample_rows rows;
  rows.dense = true;
  class_labels classes(options.classes);
  std::vector<npy_matrix> headers;
  std::uint64_t all_rows = 0;
  for (const auto& file : input.files()) {
    headers.push_back(
        read_npy_matrix(file.shown(), file.divisible() ? front_of(file, npy_front_bytes) : "", file.bytes));
    const npy_rows checked(file.name, headers.back(), options, rows, classes);
    all_rows += headers.back().rows;
  }
  if (all_rows == 0) throw data_error(input.files().front().name + ": found no row, want samples");

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
  if (options.label == sample_options::label_rule::classes) rows.classes = classes.sort(rows.label);
  return rows;
}

}  // namespace paracel
