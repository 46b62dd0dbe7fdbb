// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/vector_parser.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/number_parsing.hpp"
#include "load/ids/id_interner.hpp"
#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

constexpr std::string_view between = "\t,;| ";
/// Enough of a file for its first rows.
constexpr std::size_t first_bytes = std::size_t{64} << 10U;

bool is_between(char c) noexcept { return between.find(c) != std::string_view::npos; }

std::string_view trimmed_line(std::string_view line) noexcept {
  while (line.starts_with(' ')) line.remove_prefix(1);
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  return line;
}

/// Past the separator at `at`: one of \t,;| and the blanks around it, or blanks.
const char* past_separator(const char* at, const char* end) noexcept {
  while (at != end && is_blank(*at)) ++at;
  if (at != end && is_between(*at)) ++at;
  while (at != end && is_blank(*at)) ++at;
  return at;
}

/// The end of the quoted text that begins at `at`, past its closing quote; null if that is not the end of a field.
const char* past_quotes(const char* at, const char* end) noexcept {
  for (++at; at != end; ++at) {
    if (*at != '"') continue;
    if (at + 1 != end && at[1] == '"') ++at;
    else break;
  }
  return at != end && (at + 1 == end || is_between(at[1])) ? at + 1 : nullptr;
}

std::string_view text_between(const char* begin, const char* end) noexcept {
  return {begin, static_cast<std::size_t>(end - begin)};
}

/// The field that begins at `at`, with its quotes.
std::string_view field_at(const char* at, const char* end) noexcept {
  if (at != end && *at == '"') {
    if (const char* const past = past_quotes(at, end)) return text_between(at, past);
  }
  return text_between(at, std::find_if(at, end, is_between));
}

std::string_view without_quotes(std::string_view field) noexcept {
  return field.size() >= 2 && field.front() == '"' && field.back() == '"' ? field.substr(1, field.size() - 2) : field;
}

}  // namespace

void vector_parser::parse(const input_piece& from) {
  const auto header = layout_.header.empty() ? vector_layout::no_header : layout_.header[from.file_index()];
  for_each_line(from.text(), [&](std::string_view line, std::size_t at) {
    if (from.offset() + at == header) return;
    if (line.find_first_not_of(" \t") != std::string_view::npos) parse_line(from, line);
  });
}

id_list vector_parser::ids(bool numeric) {
  if (numeric) return id_list(std::move(numbers_));
  if (!numeric_) return std::move(names_);
  auto names = id_list::empty(false);
  for (const auto n : numbers_) names.push_back(std::string_view(std::to_string(n)));
  return names;
}

/// Removes the id and the separator after it from the line. It ends at the first tab, comma, semicolon or blank, or, if
/// there is none, at the first bar.
std::string_view vector_parser::take_id(const input_piece& from, std::string_view& line, std::string& unquoted) const {
  const char* const begin = line.data();
  const char* const end = begin + line.size();
  std::string_view id;
  if (const char* const past = line.starts_with('"') ? past_quotes(begin, end) : nullptr) {
    unquoted.clear();
    for (const char* c = begin + 1; c != past - 1; ++c) {
      unquoted += *c;
      if (*c == '"') ++c;
    }
    id = unquoted;
    line.remove_prefix(static_cast<std::size_t>(past - begin));
  } else {
    auto length = line.find_first_of("\t,; ");
    if (length == std::string_view::npos) length = line.find('|');
    id = line.substr(0, length);
    line.remove_prefix(id.size());
  }
  if (id.empty()) from.fail(begin, "found no id, want an id and numbers");
  line.remove_prefix(static_cast<std::size_t>(past_separator(line.data(), end) - line.data()));
  return id;
}

/// Appends the numbers of a line whose id was taken. Returns how many there are.
std::size_t vector_parser::numbers(const input_piece& from, std::string_view line) {
  const char* at = line.data();
  const char* const end = at + line.size();
  if (options_.skip_last && at != end) {
    const char* last = at;
    const bool empty_last = std::string_view(",;|").find(line.back()) != std::string_view::npos;
    if (empty_last) last = end;
    for (const char* field = at; field != end && !empty_last;) {
      last = field;
      const auto text = field_at(field, end);
      field = past_separator(text.data() + text.size(), end);
    }
    line = trimmed_line(text_between(at, last));
    while (!line.empty() && is_between(line.back())) line.remove_suffix(1);
  }
  const char* const stop = line.data() + line.size();
  std::size_t count = 0;
  for (bool more = at != stop; more; ++count) {
    auto read = read_number(at, stop);
    if (read.outcome != number_outcome::ok || (read.end != stop && !is_between(*read.end))) {
      const auto field = field_at(at, stop);
      const auto text = without_quotes(field);
      read = read_number(text.data(), text.data() + text.size());
      if (read.outcome != number_outcome::ok || read.end != text.data() + text.size())
        from.fail(at, "found " + quote_for_error(field) + ", want a finite number");
      read.end = field.data() + field.size();
    }
    value_.push_back(read.value);
    more = read.end != stop;
    at = past_separator(read.end, stop);
  }
  return count;
}

void vector_parser::parse_line(const input_piece& from, std::string_view line) {
  if (rows_ == refused_row_) from.fail(line.data(), refused_what_);
  auto rest = trimmed_line(line);
  std::string_view id;
  if (options_.with_ids) id = take_id(from, rest, unquoted_);
  const auto count = numbers(from, rest);
  if (count == 0)
    from.fail(line.data(), options_.with_ids ? "found an id alone, want an id and numbers" : "found no number");
  if (layout_.columns == 0) layout_.columns = count;
  if (count != layout_.columns)
    from.fail(line.data(), "found " + std::to_string(count) + " numbers, want " + std::to_string(layout_.columns));
  ++rows_;
  if (!options_.with_ids) return;
  std::uint64_t number = 0;
  if (numeric_ && canonical_number(id, number)) {
    numbers_.push_back(number);
    return;
  }
  if (numeric_) {
    names_ = ids(false);
    numbers_.clear();
    numeric_ = false;
  }
  names_.push_back(id);
}

namespace {

/// Whether a line, the first of its file, has no number and no empty field but for the id.
bool names_fields(std::string_view line, const vector_options& options) {
  line = trimmed_line(line);
  const char* const end = line.data() + line.size();
  std::size_t fields = 0;
  for (const char* at = line.data(); at != end; ++fields) {
    const auto field = field_at(at, end);
    const auto text = without_quotes(field);
    const auto read = read_number(text.data(), text.data() + text.size());
    const bool whole = read.end == text.data() + text.size();
    if (read.outcome != number_outcome::not_a_number && whole) return false;
    if (text.empty() && (fields > 0 || !options.with_ids)) return false;
    at = past_separator(field.data() + field.size(), end);
  }
  return fields > (options.with_ids ? 1U : 0U);
}

}  // namespace

vector_layout find_vector_layout(const std::vector<std::string>& names, const head_of_rows& head,
                                 const vector_options& options) {
  using rule = entry_options::header_rule;
  vector_layout out;
  out.header.assign(names.size(), vector_layout::no_header);
  out.columns = options.columns;
  for (std::size_t file = 0; file < names.size(); ++file) {
    if (options.header == rule::no && out.columns != 0) break;
    for (std::size_t bytes = first_bytes;; bytes *= 2) {
      std::uint64_t offset = 0;
      const auto text = head(file, bytes, offset);
      std::vector<std::string_view> lines;
      for_each_line(text, [&](std::string_view line, std::size_t) {
        if (lines.size() < 2 && line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back(line);
      });
      if (lines.size() < 2 && text.size() + offset >= bytes) continue;
      if (lines.empty()) break;
      const bool header =
          options.header == rule::yes || (options.header == rule::automatic && names_fields(lines[0], options));
      if (header) out.header[file] = offset + static_cast<std::uint64_t>(lines[0].data() - text.data());
      if (out.columns != 0 || lines.size() < (header ? 2U : 1U)) break;
      vector_parser first(options, {});
      first.parse(input_piece(names[file], text, lines[header ? 1 : 0]));
      out.columns = first.columns();
      break;
    }
  }
  return out;
}

vector_rows parse_vectors(const std::string& file, std::string_view text, const vector_options& options) {
  const input_piece piece(file, text);
  const auto head = [&](std::size_t, std::size_t, std::uint64_t& offset) {
    offset = piece.offset();
    return std::string(piece.text());
  };
  vector_parser parser(options, find_vector_layout({file}, head, options));
  parser.parse(piece);
  if (parser.rows() == 0) throw data_error(no_vectors(file, options));
  vector_rows rows;
  if (options.with_ids) {
    rows.ids = parser.ids(parser.numeric());
  } else {
    std::vector<std::uint64_t> numbers(parser.rows());
    std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
    rows.ids = id_list(std::move(numbers));
  }
  rows.columns = parser.columns();
  rows.value = std::move(parser.value());
  rows.rows_total = parser.rows();
  return rows;
}

std::string no_vectors(const std::string& file, const vector_options& options) {
  return file + ":1:1: found no line, want " + (options.with_ids ? "an id and numbers" : "numbers");
}

}  // namespace paracel
