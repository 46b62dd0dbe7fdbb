// SPDX-License-Identifier: BSD-3-Clause
//
// The fast path of sample_parser: for lines as programs write them, without searching for their ends first. Anything
// unusual in a line, valid or not, restarts it with the functions of sample_parser.cpp: so a single place decides what
// is accepted and what is wrong.
#include "load/format/sample_parser.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

#include "core/number_parsing.hpp"
#include "load/format/csv_fields.hpp"

namespace paracel {

namespace {

constexpr std::size_t entries_at_once = 2048;

bool ends_line(const char* at) noexcept { return *at == '\n' || (*at == '\r' && at[1] == '\n'); }

}  // namespace

void sample_parser::quick_lines(const input_piece& from, std::string_view lines) {
  const char* at = lines.data();
  const char* const end = at + lines.size();
  // The last line of a file may lack a line end, which the loops here need.
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
  if (options_.floats) {
    const auto before = rows_.floats.size();
    rows_.floats.resize(before + new_entries_);
    std::transform(new_value_.begin(), new_value_.begin() + n,
                   rows_.floats.begin() + static_cast<std::ptrdiff_t>(before), to_float);
  } else {
    rows_.value.insert(rows_.value.end(), new_value_.begin(), new_value_.begin() + n);
  }
  if (!rows_.dense) rows_.column.insert(rows_.column.end(), new_column_.begin(), new_column_.begin() + n);
  new_entries_ = 0;
}

/// A number of many digits, or a missing value, that fills its field of a CSV line. The first character tells which, so
/// that the end of a number is not searched for first.
bool sample_parser::other_number(const char*& at, const char* last, double& out) const {
  const auto ends = [&](const char* p) { return *p == layout_.separator || *p == '\n' || *p == '\r'; };
  if ((*at >= '0' && *at <= '9') || *at == '-' || *at == '.') {
    double v = 0;
    const auto [end, problem] = std::from_chars(at, last, v);
    if (problem != std::errc() || !std::isfinite(v) || !ends(end)) return false;
    out = v;
    at = end;
    return true;
  }
  if (!options_.missing || *at == ' ' || (layout_.separator == ' ' && ends(at))) return false;
  const char* end = at;
  while (!ends(end)) ++end;
  if (!missing_.is_missing({at, static_cast<std::size_t>(end - at)})) return false;
  out = missing_values::value;
  at = end;
  return true;
}

/// The same for a category where there are words.
bool sample_parser::quick_category(const category_words& words, const char*& at, double& out) const {
  const char* end = at;
  while (*end != layout_.separator && *end != '\n' && *end != '\r') ++end;
  const std::string_view text(at, static_cast<std::size_t>(end - at));
  if (const auto known = words.find(text)) out = *known;
  else if (layout_.separator != ' ' && missing_.is_missing(text)) out = missing_values::value;
  else return false;
  at = end;
  return true;
}

/// Parses the label at `at` and advances past it; false: use the slow path.
bool sample_parser::quick_label(const char*& at, const char* last) {
  using rule = sample_options::label_rule;
  if (options_.label == rule::real || options_.label == rule::relevance) {
    double v = 0;
    if (!read_short_number(at, static_cast<std::size_t>(last - at), v)) return false;
    if (options_.label == rule::relevance && !is_relevance(v)) return false;
    rows_.label.push_back(v);
    return true;
  }
  if (options_.label == rule::binary) {
    const bool minus = *at == '-';
    const char* const p = at + (minus || *at == '+' ? 1 : 0);
    if ((*p == '0' || *p == '1') && (p[1] == ' ' || ends_line(p + 1) || (rows_.dense && p[1] == layout_.separator))) {
      const double index = *p == '0' && p != at ? -1 : quick_class_[minus ? 2 : *p - '0'];
      if (index < 0) return false;
      rows_.label.push_back(index);
      at = p + 1;
      return true;
    }
  }
  // Only labels that were seen before in this spelling.
  const char* p = at;
  const char stop = rows_.dense ? layout_.separator : ' ';
  while (*p != stop && *p != ' ' && *p != '\n' && *p != '\r' && *p != '\t' && *p != '"') ++p;
  const auto known = classes_.find({at, static_cast<std::size_t>(p - at)});
  if (!known) return false;
  rows_.label.push_back(*known);
  at = p;
  return true;
}

/// The next line, or null when the fast path does not apply; the rows are then unchanged.
const char* sample_parser::quick_libsvm_line(const char* at, const char* last) {
  if (!rows_.categorical.empty()) return nullptr;
  const auto entries_before = entries();
  const auto new_before = new_entries_;
  const auto labels_before = rows_.label.size();
  const auto give_up = [&]() -> const char* {
    rows_.label.resize(labels_before);
    if (entries() != entries_before) {  // some entries of this line have been flushed, and all before them
      if (options_.floats) rows_.floats.resize(entries_before + new_before);
      else rows_.value.resize(entries_before + new_before);
      rows_.column.resize(entries_before + new_before);
      new_entries_ = 0;
    } else {
      new_entries_ = new_before;
    }
    return nullptr;
  };
  if (!reads_labels(options_)) {
    if (*at == '#') return nullptr;
    const char* p = at;
    while (*p != ' ' && *p != ':' && *p != '\t' && *p != '\n' && *p != '\r') ++p;
    if (p == at) return nullptr;  // perhaps a blank line
    if (*p == ' ') at = p;
    else if (*p != ':') return nullptr;
  } else if (!quick_label(at, last)) {
    return give_up();
  }
  std::uint64_t group_number = 0;
  if (!options_.group.empty()) {
    if (reads_labels(options_) && *at != ' ') return give_up();
    while (*at == ' ') ++at;
    const char* end = at;
    while (*end != ' ' && *end != '\t' && *end != '\n' && *end != '\r') ++end;
    const std::string_view token(at, static_cast<std::size_t>(end - at));
    if (!token.starts_with(group_mark) || token.size() == group_mark.size()) return give_up();
    group_number = quick_group(token.substr(group_mark.size()));
    at = end;
  }
  const std::uint64_t limit = options_.index_limit;
  const std::uint64_t columns = options_.columns;
  double weight = 0;
  std::uint64_t previous = 0;
  for (;;) {
    while (*at == ' ') ++at;
    if (*at == '#' && at[-1] == ' ') {
      while (*at != '\n' && !(*at == '\r' && at[1] == '\n')) ++at;
    }
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
    if (index == weight_index_) {
      if (v < 0) return give_up();
      weight = v;
      continue;
    }
    const auto column = column_of(index);
    if (columns != 0 && column >= columns) continue;
    if (new_entries_ == entries_at_once) flush();
    new_column_[new_entries_] = column;
    new_value_[new_entries_++] = missing_.read(v);
  }
  rows_.row_begin.push_back(entries() + new_entries_);
  if (columns == 0) rows_.columns = std::max(rows_.columns, width_of(previous));
  if (!options_.weight.empty()) rows_.weight.push_back(weight);
  if (!options_.group.empty()) rows_.group.push_back(group_number);
  return at + (*at == '\r' ? 2 : 1);
}

const char* sample_parser::quick_csv_line(const char* at, const char* last) {
  if (*at == '\n' || *at == '\r' || *at == '\t') return nullptr;  // perhaps a blank line
  const std::size_t columns = rows_.columns;
  if (new_entries_ + columns > new_value_.size()) flush();
  double* const row = new_value_.data() + new_entries_;
  const char separator = layout_.separator;
  const auto fields = role_.size();
  const bool has_numbers = missing_.has_numbers();
  const char* label_field = nullptr;
  double weight = 0;
  std::uint64_t group_number = 0;
  for (std::size_t f = 0;; ++f) {
    if (is_feature(role_[f])) {
      double& to = row[role_[f]];
      const auto* const words = some_words_ ? words_of_[role_[f]] : nullptr;
      if (words != nullptr && words->has_words()) {
        if (!quick_category(*words, at, to)) return nullptr;
      } else if (!read_short_number(at, static_cast<std::size_t>(last - at), to) && !other_number(at, last, to)) {
        return nullptr;
      } else if (has_numbers) {
        to = missing_.read(to);
      }
    } else if (role_[f] == is_weight) {
      if (!read_short_number(at, static_cast<std::size_t>(last - at), weight) || weight < 0) return nullptr;
    } else {
      const char* const begin = at;
      if (role_[f] == is_label) label_field = at;
      while (*at != separator && *at != '\n' && *at != '\r' && *at != '"' && *at != '\t') ++at;
      if (separator == ' ' && at == begin) return nullptr;  // a run of blanks
      if (role_[f] == is_group) {
        const std::string_view text(begin, static_cast<std::size_t>(at - begin));
        if (text.empty() || text.front() == ' ' || text.back() == ' ') return nullptr;
        group_number = quick_group(text);
      }
    }
    if (f + 1 == fields) break;
    if (*at != separator) return nullptr;
    ++at;
  }
  if (!ends_line(at)) return nullptr;
  for (const auto c : rows_.categorical) {
    if (!is_category(row[c])) return nullptr;
  }
  if (label_field != nullptr) {
    const auto labels = rows_.label.size();
    if (!quick_label(label_field, last)) return nullptr;
    if (*label_field != separator && label_field != at) {
      rows_.label.resize(labels);
      return nullptr;
    }
  }
  if (!options_.weight.empty()) rows_.weight.push_back(weight);
  if (!options_.group.empty()) rows_.group.push_back(group_number);
  new_entries_ += columns;
  return at + (*at == '\r' ? 2 : 1);
}

}  // namespace paracel
