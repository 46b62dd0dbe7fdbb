// SPDX-License-Identifier: BSD-3-Clause
//
// The fast path of sample_parser: for lines as programs write them, without searching for their ends first. Anything
// unusual in a line, valid or not, restarts it with the functions of sample_parser.cpp: so a single place decides what
// is accepted and what is wrong.
#include "load/format/sample_parser.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/number_parsing.hpp"

namespace paracel {

namespace {

constexpr std::size_t entries_at_once = 2048;

bool ends_line(const char* at) noexcept { return *at == '\n' || (*at == '\r' && at[1] == '\n'); }

}  // namespace

void sample_parser::quick_lines(const input_piece& from, std::string_view lines) {
  const char* at = lines.data();
  const char* const end = at + lines.size();
  // The last line of a file may lack an end, which the loops here need.
  const char* last = end;
  while (last != at && last[-1] != '\n') --last;
  const bool csv = layout_.format == sample_format::csv;
  new_value_.resize(std::max<std::size_t>(entries_at_once, csv ? rows_.columns : 0));
  if (!csv) new_column_.resize(entries_at_once);
  while (at != last) {
    const char* next = nullptr;
    if (!careful_) next = csv ? quick_csv_line(at, last) : quick_libsvm_line(at, last);
    if (next != nullptr) {
      ++rows_.row_count;
      at = next;
      continue;
    }
    const char* const stop = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(last - at)));
    flush();
    std::string_view text(at, static_cast<std::size_t>(stop - at));
    if (text.ends_with('\r')) text.remove_suffix(1);
    line(from, text);
    at = stop + 1;
  }
  flush();
  if (last != end) line(from, {last, static_cast<std::size_t>(end - last)});
}

void sample_parser::flush() {
  const auto n = static_cast<std::ptrdiff_t>(new_entries_);
  rows_.value.insert(rows_.value.end(), new_value_.begin(), new_value_.begin() + n);
  if (!rows_.dense) rows_.column.insert(rows_.column.end(), new_column_.begin(), new_column_.begin() + n);
  new_entries_ = 0;
}

/// The label at `at`, which must end there; false: use the slow path.
bool sample_parser::quick_label(const char*& at, const char* last) {
  if (options_.label == sample_options::label_rule::real) {
    double v = 0;
    if (!read_short_number(at, static_cast<std::size_t>(last - at), v)) return false;
    rows_.label.push_back(v);
    return true;
  }
  if (options_.label == sample_options::label_rule::classes) {
    // Labels that were seen before, as they are written.
    const char* p = at;
    const char stop = rows_.dense ? layout_.separator : ' ';
    while (*p != stop && *p != ' ' && *p != '\n' && *p != '\r' && *p != '\t' && *p != '"') ++p;
    const auto known = classes_.find({at, static_cast<std::size_t>(p - at)});
    if (!known) return false;
    rows_.label.push_back(*known);
    at = p;
    return true;
  }
  const bool minus = *at == '-';
  const char* p = at + (minus || *at == '+' ? 1 : 0);
  if ((*p != '0' && *p != '1') || (p[1] != ' ' && !ends_line(p + 1) && !(rows_.dense && p[1] == layout_.separator)))
    return false;
  // A zero or a -1 that could be of either kind is left to the function that reports it.
  if (*p == '1' && minus) {
    if (rows_.has_label_zero || rows_.dense) return false;
    rows_.has_label_minus_one = true;
  } else if (*p == '0') {
    if (rows_.has_label_minus_one || p != at) return false;
    rows_.has_label_zero = true;
  }
  rows_.label.push_back(*p == '1' && !minus ? 1 : -1);
  at = p + 1;
  return true;
}

/// The next line, or null when the fast path does not apply; the rows are then unchanged.
const char* sample_parser::quick_libsvm_line(const char* at, const char* last) {
  const auto rows_before = rows_.value.size();
  const auto new_before = new_entries_;
  const auto labels_before = rows_.label.size();
  const auto give_up = [&]() -> const char* {
    rows_.label.resize(labels_before);
    if (rows_.value.size() != rows_before) {  // some entries of this line have been flushed, and all before it
      rows_.value.resize(rows_before + new_before);
      rows_.column.resize(rows_before + new_before);
      new_entries_ = 0;
    } else {
      new_entries_ = new_before;
    }
    return nullptr;
  };
  if (options_.without_label || options_.label == sample_options::label_rule::none) {
    const char* p = at;
    while (*p != ' ' && *p != ':' && *p != '\t' && *p != '\n' && *p != '\r') ++p;
    if (p == at) return nullptr;  // perhaps a blank line
    if (*p == ' ') at = p;
    else if (*p != ':') return nullptr;
  } else if (!quick_label(at, last)) {
    return give_up();
  }
  const std::uint64_t limit = options_.index_limit;
  const std::uint64_t columns = options_.columns;
  std::uint64_t previous = 0;
  for (;;) {
    while (*at == ' ') ++at;
    if (ends_line(at)) break;
    std::uint64_t index = 0;
    const char* const first = at;
    for (unsigned d = static_cast<unsigned char>(*at) - unsigned{'0'}; d < 10;
         d = static_cast<unsigned char>(*++at) - unsigned{'0'}) {
      index = index * 10 + d;
    }
    if (*at != ':' || index <= previous || index > limit || at - first > 10) return give_up();
    previous = index;
    ++at;
    double v = 0;
    const unsigned one = static_cast<unsigned char>(*at) - unsigned{'0'};
    if (one < 10 && at[1] == ' ') {
      v = one;
      ++at;
    } else if (!read_short_number(at, static_cast<std::size_t>(last - at), v) || (*at != ' ' && !ends_line(at))) {
      return give_up();
    }
    if (columns != 0 && index > columns) continue;
    if (new_entries_ == entries_at_once) flush();
    new_column_[new_entries_] = static_cast<std::uint32_t>(index - 1);
    new_value_[new_entries_++] = v;
  }
  rows_.row_begin.push_back(rows_.value.size() + new_entries_);
  if (columns == 0) rows_.columns = std::max(rows_.columns, static_cast<std::uint32_t>(previous));
  return at + (*at == '\r' ? 2 : 1);
}

const char* sample_parser::quick_csv_line(const char* at, const char* last) {
  const std::size_t columns = rows_.columns;
  if (new_entries_ + columns > new_value_.size()) flush();
  double* const row = new_value_.data() + new_entries_;
  const char separator = layout_.separator;
  const auto fields = role_.size();
  const char* label_field = nullptr;
  for (std::size_t f = 0;; ++f) {
    if (role_[f] < is_label) {
      if (!read_short_number(at, static_cast<std::size_t>(last - at), row[role_[f]])) return nullptr;
    } else {
      if (separator == ' ') return nullptr;  // runs of blanks
      if (role_[f] == is_label) label_field = at;
      while (*at != separator && *at != '\n' && *at != '\r' && *at != '"') ++at;
    }
    if (f + 1 == fields) break;
    if (*at != separator) return nullptr;
    ++at;
  }
  if (!ends_line(at)) return nullptr;
  if (label_field != nullptr) {
    const auto labels = rows_.label.size();
    if (!quick_label(label_field, last)) return nullptr;
    if (*label_field != separator && label_field != at) {
      rows_.label.resize(labels);
      return nullptr;
    }
  }
  new_entries_ += columns;
  return at + (*at == '\r' ? 2 : 1);
}

}  // namespace paracel
