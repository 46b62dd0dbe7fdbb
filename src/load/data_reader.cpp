// SPDX-License-Identifier: BSD-3-Clause
#include "load/data_reader.hpp"

#include <algorithm>
#include <utility>

#include "core/text_number.hpp"
#include "paracel/error.hpp"
#include "load/byte_range.hpp"

namespace paracel {

namespace {

constexpr std::string_view blanks = " \t";
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

bool only_blanks(std::string_view line) noexcept { return line.find_first_not_of(blanks) == std::string_view::npos; }

std::string_view without_mark(std::string_view text) noexcept {
  if (text.substr(0, byte_order_mark.size()) == byte_order_mark) text.remove_prefix(byte_order_mark.size());
  return text;
}

std::string fields_text(std::size_t n) { return std::to_string(n) + (n == 1 ? " field" : " fields"); }

}  // namespace

bool find_layout(std::string_view text, sample_layout& out) noexcept {
  text = without_mark(text);
  while (!text.empty()) {
    const auto newline = text.find('\n');
    auto line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (only_blanks(line)) continue;
    // A line without either mark is a libsvm sample that is zero everywhere: a CSV sample has at least one feature.
    const bool csv = line.find(':') == std::string_view::npos && line.find(',') != std::string_view::npos;
    out.format = csv ? sample_format::csv : sample_format::libsvm;
    out.fields = csv ? 1 + static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) : 0;
    return true;
  }
  return false;
}

sample_parser::sample_parser(const sample_layout& layout, const sample_options& options)
    : layout_(layout), options_(options) {
  rows_.dense = layout.format == sample_format::csv;
  rows_.columns = options.columns;
  if (rows_.dense && !options.without_label) rows_.columns = static_cast<std::uint32_t>(layout.fields - 1);
}

void sample_parser::fail(const source& from, const char* at, const std::string& what) {
  const auto offset = static_cast<std::size_t>(at - from.whole.data());
  const auto before = from.whole.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const auto column = offset - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  throw data_error(from.file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
}

/// Reads the number at `at`, which ends at one of `stops` or at `last`, and moves `at` behind it.
double sample_parser::number(const source& from, const char*& at, const char* last, std::string_view stops) {
  const auto reading = read_number(at, last);
  const bool whole = reading.end == last || stops.find(*reading.end) != std::string_view::npos;
  if (reading.outcome == number_outcome::ok && whole) {
    at = reading.end;
    return reading.value;
  }
  const char* end = at;
  while (end != last && stops.find(*end) == std::string_view::npos) ++end;
  const std::string_view token(at, static_cast<std::size_t>(end - at));
  fail(from, at, "found " + shown(token) + ", want a " +
                     (reading.outcome == number_outcome::not_finite && whole ? "finite number" : "number"));
}

void sample_parser::label(const source& from, std::string_view token) {
  double v = 0;
  const bool csv = layout_.format == sample_format::csv;
  const bool read = read_whole_number(token, v);
  if (read && v == 1) {
    rows_.label.push_back(1);
    return;
  }
  if (read && (v == 0 || (v == -1 && !csv))) {
    (v == 0 ? rows_.has_label_zero : rows_.has_label_minus_one) = true;
    if (rows_.has_label_zero && rows_.has_label_minus_one) {
      fail(from, token.data(), "found label " + shown(token) + " in an input that has label " +
                                   (v == 0 ? "-1" : "0") + " too; want 0 and 1, or -1 and +1");
    }
    rows_.label.push_back(-1);
    return;
  }
  fail(from, token.data(), "found label " + shown(token) + ", want " + (csv ? "0 or 1" : "-1, 0 or +1"));
}

void sample_parser::csv_line(const source& from, std::string_view line) {
  const char* at = line.data();
  const char* last = at + line.size();
  const std::size_t features = rows_.columns;
  std::string_view last_field;
  for (std::size_t field = 0; field < layout_.fields; ++field) {
    while (at != last && is_blank(*at)) ++at;
    if (field < features) {
      rows_.value.push_back(number(from, at, last, ", \t"));
    } else {
      const char* begin = at;
      while (at != last && *at != ',' && !is_blank(*at)) ++at;
      last_field = {begin, static_cast<std::size_t>(at - begin)};
    }
    while (at != last && is_blank(*at)) ++at;
    const bool more = field + 1 < layout_.fields;
    if (more && at != last && *at == ',') {
      ++at;
    } else if (more || at != last) {
      if (at != last && *at != ',') fail(from, at, "found " + shown({at, 1}) + " after a number, want a comma");
      const auto found = 1 + static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
      fail(from, at, "found " + fields_text(found) + ", want " + std::to_string(layout_.fields) +
                         " as in the first line");
    }
  }
  // After the width: in a row with a field too many, the label is not where it seems to be.
  if (!options_.without_label) label(from, last_field);
}

void sample_parser::libsvm_line(const source& from, std::string_view line) {
  const char* at = line.data();
  const char* last = at + line.size();
  const auto skip_blanks = [&] {
    while (at != last && is_blank(*at)) ++at;
  };
  skip_blanks();
  const char* end = at;
  while (end != last && !is_blank(*end) && *end != ':') ++end;
  const bool missing = options_.without_label && end != last && *end == ':';
  if (!missing) {
    while (end != last && !is_blank(*end)) ++end;
    if (!options_.without_label) label(from, {at, static_cast<std::size_t>(end - at)});
    at = end;
  }
  std::uint64_t previous = 0;
  for (skip_blanks(); at != last; skip_blanks()) {
    const char* begin = at;
    std::uint64_t index = 0;
    // 20 digits would overflow; 18 are beyond every limit.
    while (at != last && *at >= '0' && *at <= '9' && at - begin < 18) {
      index = index * 10 + static_cast<std::uint64_t>(*at++ - '0');
    }
    if (at == begin || at == last || *at != ':') {
      const char* stop = begin;
      while (stop != last && !is_blank(*stop)) ++stop;
      fail(from, begin, "found " + shown({begin, static_cast<std::size_t>(stop - begin)}) + ", want index:value");
    }
    if (index == 0) fail(from, begin, "found index 0, want 1 or more");
    if (index > options_.index_limit) {
      fail(from, begin, "found index " + std::to_string(index) + ", want at most " +
                            std::to_string(options_.index_limit));
    }
    if (index <= previous) {
      fail(from, begin, "found index " + std::to_string(index) + " after " + std::to_string(previous) +
                            ", want increasing indices");
    }
    previous = index;
    ++at;
    const double v = number(from, at, last, blanks);
    if (options_.columns != 0 && index > options_.columns) continue;
    rows_.column.push_back(static_cast<std::uint32_t>(index - 1));
    rows_.value.push_back(v);
  }
  rows_.row_begin.push_back(rows_.value.size());
  if (options_.columns == 0) rows_.columns = std::max(rows_.columns, static_cast<std::uint32_t>(previous));
}

void sample_parser::parse(const std::string& file, std::string_view whole, std::string_view lines) {
  const source from{file, whole};
  if (lines.data() == whole.data()) lines = without_mark(lines);
  const auto row_guess = static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')) + 1;
  rows_.label.reserve(rows_.label.size() + row_guess);
  if (layout_.format == sample_format::csv) {
    const std::size_t features = rows_.columns;
    if (options_.columns != 0 && features != options_.columns) {
      fail(from, whole.data(), "found " + fields_text(layout_.fields) + " in the first line, want " +
                                   std::to_string(options_.columns + std::size_t{1}) + ": " +
                                   std::to_string(options_.columns) + " features and a label");
    }
    if (options_.without_label && layout_.fields != features && layout_.fields != features + 1) {
      fail(from, whole.data(), "found " + fields_text(layout_.fields) + " in the first line, want " +
                                   std::to_string(features) + " features, with or without a label");
    }
    // A number and its comma are two bytes at least: a long first line over many short ones must not reserve terabytes.
    rows_.value.reserve(rows_.value.size() + std::min(row_guess * features, lines.size() / 2 + 1));
  } else {
    rows_.row_begin.reserve(rows_.row_begin.size() + row_guess);
    const auto entries = static_cast<std::size_t>(std::count(lines.begin(), lines.end(), ':'));
    rows_.column.reserve(rows_.column.size() + entries);
    rows_.value.reserve(rows_.value.size() + entries);
  }
  for_each_line(lines, [&](std::string_view line, std::size_t) {
    if (only_blanks(line)) return;
    if (layout_.format == sample_format::csv) {
      csv_line(from, line);
    } else {
      libsvm_line(from, line);
    }
    ++rows_.row_count;
  });
}

sample_rows sample_parser::take() { return std::move(rows_); }

namespace {

std::string all_names(const std::vector<std::string>& names) {
  std::string s;
  for (const auto& n : names) s += (s.empty() ? "" : ", ") + n;
  return s;
}

}  // namespace

sample_rows read_samples(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                         const sample_options& options) {
  std::vector<mapped_file> files;
  std::vector<std::uint64_t> bytes;
  for (const auto& path : expand(names)) {
    files.emplace_back(path);
    bytes.push_back(files.back().text().size());
  }
  sample_layout layout;
  if (std::none_of(files.begin(), files.end(), [&](const auto& f) { return find_layout(f.text(), layout); })) {
    throw data_error((files.size() == 1 ? files[0].path() : all_names(names)) + ":1:1: found no line, want samples");
  }
  sample_parser parser(layout, options);
  for (const auto& piece : byte_range(bytes, rank, size)) {
    const auto whole = files[piece.file].text();
    const auto lines = whole_lines(whole, piece.begin, piece.end);
    parser.parse(files[piece.file].path(), whole, lines);
  }
  return parser.take();
}

sample_rows parse_samples(const std::string& file, std::string_view text, const sample_options& options) {
  sample_layout layout;
  if (!find_layout(text, layout)) throw data_error(file + ":1:1: found no line, want samples");
  sample_parser parser(layout, options);
  parser.parse(file, text, text);
  return parser.take();
}

}  // namespace paracel
