// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/entry_parser.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"

namespace paracel {

using entry_detail::next_word;
using entry_detail::without_blanks;

namespace {

/// Dense ids may go up to twice the expected number of entries: one line is at least 4 bytes, typically 10.
constexpr std::uint64_t bytes_of_a_line = 8;
constexpr std::uint64_t dense_ids_at_least = std::uint64_t{1} << 20;

std::uint64_t dense_below(const entry_layout& layout, const entry_use& use) {
  auto most = dense_ids_at_least;
  if (use.whole_matrices) {
    for (const auto& m : layout.matrices) most = std::max({most, m.rows + 1, m.columns + 1});
  }
  const auto of_bytes = 2 * use.expected_bytes / bytes_of_a_line;
  return std::clamp<std::uint64_t>(of_bytes, most, std::numeric_limits<std::uint32_t>::max());
}

/// A whole number in digits, leading zeros allowed.
bool read_digits(std::string_view text, std::uint64_t& out) noexcept {
  while (text.size() > 1 && text[0] == '0') text.remove_prefix(1);
  return canonical_number(text, out);
}

/// Checks a value against entry_options::non_negative.
double allowed(const input_piece& piece, double value, std::string_view text, const char* at, bool non_negative) {
  if (non_negative && value < 0) piece.fail(at, "found " + quote_for_error(text) + ", want a number of at least 0");
  return value;
}

double read_value(const input_piece& piece, std::string_view text, const char* at, bool non_negative) {
  const auto* const end = text.data() + text.size();
  const auto reading = read_number(text.data(), end);
  const bool whole = !text.empty() && reading.end == end;
  if (reading.outcome == number_outcome::ok && whole) return allowed(piece, reading.value, text, at, non_negative);
  piece.fail(at, "found " + quote_for_error(text) + ", want a " +
                     (reading.outcome == number_outcome::not_finite && whole ? "finite number" : "number"));
}

}  // namespace

entry_parser::entry_parser(const entry_layout& layout, const entry_options& options, const entry_use& use)
    : layout_(layout),
      options_(options),
      use_(use),
      second_stays_number_(layout.format == entry_format::libsvm && !use.one_dictionary),
      ids_{id_interner(dense_below(layout, use)), id_interner(dense_below(layout, use))},
      entries_(use.values),
      entries_of_file_(layout.matrices.size()) {
  for (int f = 0; f < 2; ++f) {
    fresh_[f].resize(batch);
    fresh_index_[f].resize(batch);
  }
  if (use.values) fresh_value_.resize(batch);
  if (options.ids == entry_options::id_kind::name) make_names();
}

void entry_parser::leave_dense(int side) {
  auto& ids = ids_[side];
  if (ids.what() != id_interner::kind::dense) return;
  ids.leave_dense();
  entries_.change_blocks([&](const chunked_vector::view& b) {
    for (std::size_t k = 0; k < b.size; ++k) {
      for (int f = 0; f < 2; ++f) {
        if (this->side(f) != side) continue;
        auto& i = f == row_field() ? b.row[k] : b.column[k];
        i = ids.index(std::uint64_t{i});
      }
    }
  });
}

void entry_parser::flush() {
  const auto n = std::exchange(fresh_count_, 0);
  if (n == 0) return;
  for (int f = 0; f < 2; ++f) {
    auto& ids = ids_[side(f)];
    if (ids.numeric() && !ids.accepts(*std::ranges::max_element(std::span(fresh_[f]).first(n)))) leave_dense(side(f));
  }
  for (int f = 0; f < 2; ++f) {
    auto& ids = ids_[side(f)];
    if (ids.numeric()) ids.index(std::span(fresh_[f]).first(n), fresh_index_[f].data());
    else ids.index(fresh_name_[f], fresh_index_[f].data());
    fresh_name_[f].clear();
  }
  entries_.append(fresh_index_[row_field()].data(), fresh_index_[1 - row_field()].data(), fresh_value_.data(), n);
}

void entry_parser::make_names() {
  flush();
  numeric_ = false;
  for (int s = 0; s < 2; ++s) {
    if (s == 1 && second_stays_number_) continue;
    leave_dense(s);
    ids_[s].make_names();
  }
}

bool entry_parser::number(const input_piece& piece, int field, const token& id, std::uint64_t& out) {
  if (id.text.empty()) piece.fail(id.at, "found an empty field, want an id");
  if (!ids_[side(field)].numeric()) return false;
  if (canonical_number(id.text, out)) return true;
  if (options_.ids == entry_options::id_kind::number || (field == 1 && second_stays_number_)) {
    if (read_digits(id.text, out)) return true;
    piece.fail(id.at, "found " + quote_for_error(id.text) + ", want an id: a whole number from 0 to 2^64 - 1");
  }
  make_names();
  return false;
}

void entry_parser::add(const input_piece& piece, token first, token second, double value) {
  std::uint64_t numbers[2] = {};
  number(piece, 0, first, numbers[0]);
  number(piece, 1, second, numbers[1]);
  // The second one may have turned the first one into a name as well.
  for (int f = 0; f < 2; ++f) {
    if (ids_[side(f)].numeric()) fresh_[f][fresh_count_] = numbers[f];
    else fresh_name_[f].push_back(f == 0 ? first.text : second.text);
  }
  add_fresh(value);
  // Quoted names are in buffers that the next line reuses.
  if (first.text.data() == unquoted_[0].data() || second.text.data() == unquoted_[1].data()) flush();
}

namespace {

/// The next field; quotes that are not closed are an error.
entry_detail::token checked_field(const input_piece& piece, std::string_view& rest, char separator, bool& more,
                                  std::string& unquoted) {
  return entry_detail::next_field(rest, separator, more, unquoted,
                                  [&](const char* at, const std::string& what) { piece.fail(at, what); });
}

}  // namespace

/// Fields that were selected by name or number.
void entry_parser::selected_line(const input_piece& piece, std::string_view line, const entry_layout::fields_file& of) {
  const auto separator = layout_.separator;
  const bool needs_value =
      of.column[2] != entry_layout::fields_file::no_field && options_.values != entry_options::value_rule::ignore;
  token found[3] = {};
  std::size_t left = needs_value ? 3 : 2;
  auto rest = line;
  bool more = true;
  std::uint64_t fields = 0;
  for (; more && left > 0; ++fields) {
    std::size_t role = 0;
    while (role < 3 && of.column[role] != fields) ++role;
    const auto text = checked_field(piece, rest, separator, more, unquoted_[role]);
    if (role == 3 || (role == 2 && !needs_value)) continue;
    found[role] = text;
    --left;
  }
  if (left > 0)
    piece.fail(line.data() + line.size(),
               "found " + std::to_string(fields) + (fields == 1 ? " field, want " : " fields, want ") +
                   std::to_string(1 + std::max({of.column[0], of.column[1], needs_value ? of.column[2] : 0})));
  double value = 1;
  if (needs_value) value = read_value(piece, found[2].text, found[2].at, options_.non_negative);
  add(piece, found[0], found[1], value);
}

void entry_parser::fields_line(const input_piece& piece, std::string_view line) {
  auto rest = line;
  bool more = false;
  const auto first = checked_field(piece, rest, layout_.separator, more, unquoted_[0]);
  if (first.text.empty()) piece.fail(first.at, "found an empty field, want an id");
  if (!more) piece.fail(first.at, "found one field, want two or three");
  auto second = checked_field(piece, rest, layout_.separator, more, unquoted_[1]);
  const bool quoted = second.text.data() == unquoted_[1].data();
  const auto mark = second.text.find_last_of(":|");
  const bool marked = mark != std::string_view::npos && mark > 0 && !quoted;

  double value = 1;
  bool has_value = more;
  if (more) {
    // Alone it would be b:w; as a name it would be another id, and of libsvm's index:value index:value one would be
    // lost.
    if (double ignored = 0; marked && read_whole_number(second.text.substr(mark + 1), ignored))
      piece.fail(second.at, "found " + quote_for_error(second.text) +
                                " with a field after it, want id:value alone, or the format libsvm");
    if (options_.values != entry_options::value_rule::ignore) {
      const auto third = checked_field(piece, rest, layout_.separator, more, unquoted_[2]);
      value = read_value(piece, third.text, third.at, options_.non_negative);
    }
  } else if (marked) {
    // b:w. A name may contain a colon too: then no number follows it.
    const auto id = second.text.substr(0, mark);
    const auto text = second.text.substr(mark + 1);
    std::uint64_t ignored = 0;
    double read = 0;
    has_value = read_whole_number(text, read);
    const bool must_be_value = canonical_number(id, ignored);
    const bool ignore = options_.values == entry_options::value_rule::ignore;
    if (has_value) value = allowed(piece, read, text, text.data(), options_.non_negative && !ignore);
    else if (must_be_value && !ignore) read_value(piece, text, text.data(), options_.non_negative);
    if (has_value || must_be_value) second.text = id;
  }
  if (second.text.empty()) piece.fail(second.at, "found an empty field, want an id");
  if (!has_value && options_.values == entry_options::value_rule::need)
    piece.fail(line.data() + line.size(), "found two fields, want a value after them");
  add(piece, first, second, value);
}

/// index:value index:value ... of a row; false if there is none.
bool entry_parser::libsvm_words(const input_piece& piece, token row, std::string_view rest) {
  bool any = false;
  for (auto word = next_word(rest); !word.empty(); word = next_word(rest)) {
    const auto colon = word.find(':');
    if (colon == std::string_view::npos || colon == 0)
      piece.fail(word.data(), "found " + quote_for_error(word) + ", want index:value");
    double value = 1;
    const auto text = word.substr(colon + 1);
    if (options_.values != entry_options::value_rule::ignore)
      value = read_value(piece, text, text.data(), options_.non_negative);
    add(piece, row, {word.substr(0, colon), word.data()}, value);
    any = true;
  }
  return any;
}

void entry_parser::libsvm_line(const input_piece& piece, std::string_view line) {
  auto rest = line;
  const auto row = next_word(rest);
  const token first{row, row.data()};
  if (libsvm_words(piece, first, rest)) return;
  std::uint64_t n = 0;
  if (number(piece, 0, first, n)) {
    if (!ids_[0].accepts(n)) {
      flush();
      leave_dense(0);
    }
    ids_[0].index(n);
  } else {
    ids_[0].index(row);
  }
}

void entry_parser::matrix_line(const input_piece& piece, std::string_view line, const entry_layout::matrix& of) {
  auto rest = line;
  std::uint64_t number = 0;
  const auto first = next_word(rest);
  if (!canonical_number(first, number) || number == 0 || number > of.rows)
    piece.fail(first.data(), "found " + quote_for_error(first) + ", want a row from 1 to " + std::to_string(of.rows));
  const auto second = next_word(rest);
  if (!canonical_number(second, number) || number == 0 || number > of.columns)
    piece.fail(second.data(),
               "found " + quote_for_error(second) + ", want a column from 1 to " + std::to_string(of.columns));
  double value = 1;
  const auto third = next_word(rest);
  if (!of.pattern && options_.values != entry_options::value_rule::ignore)
    value = read_value(piece, third, third.data(), options_.non_negative);
  if (of.pattern && options_.values == entry_options::value_rule::need)
    piece.fail(line.data(), "found a pattern, want a matrix with values");
  if (const auto extra = of.pattern ? third : without_blanks(rest); !extra.empty())
    piece.fail(extra.data(), "found " + quote_for_error(extra) + " after the entry");
  const token a{first, first.data()};
  const token b{second, second.data()};
  add(piece, a, b, value);
  if (of.symmetric && use_.mirror_symmetric && first != second) add(piece, b, a, value);
}

void entry_parser::line(const input_piece& piece, std::string_view line) {
  if (layout_.format == entry_format::matrix_market) {
    if (without_blanks(line).empty() || line[0] == '%') return;
    matrix_line(piece, line, layout_.matrices[piece.file_index()]);
    ++entries_of_file_[piece.file_index()];
    return;
  }
  if (skipped(line)) return;
  if (layout_.format == entry_format::libsvm) return libsvm_line(piece, line);
  if (const auto& of = fields_of(piece); of.usual()) fields_line(piece, line);
  else selected_line(piece, line, of);
}

bool entry_parser::skipped(std::string_view line) {
  if (!without_entry(line, options_.comments)) return false;
  comments_ += without_blanks(line).empty() ? 0 : 1;
  return true;
}

void entry_parser::lines(const input_piece& piece, std::string_view lines) {
  const auto whole = lines.rfind('\n');
  const auto n = whole == std::string_view::npos ? 0 : whole + 1;
  fast_lines(piece, lines.substr(0, n));
  lines.remove_prefix(n);
  for_each_line(lines, [&](std::string_view text, std::size_t) { line(piece, text); });
}

namespace {

/// The lines before the header, if it is among them, and those after it.
std::pair<std::string_view, std::string_view> without_header(const input_piece& piece,
                                                             const entry_layout::fields_file& of) {
  const auto text = piece.text();
  if (of.header < piece.offset() || of.header - piece.offset() >= text.size()) return {{}, text};
  const auto at = static_cast<std::size_t>(of.header - piece.offset());
  const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
  return {text.substr(0, at), text.substr(end)};
}

}  // namespace

void entry_parser::parse(const input_piece& piece) {
  if (layout_.format == entry_format::matrix_market) {
    auto text = piece.text();
    const auto& of = layout_.matrices[piece.file_index()];
    if (piece.offset() < of.header_bytes)
      text.remove_prefix(std::min<std::uint64_t>(text.size(), of.header_bytes - piece.offset()));
    lines(piece, text);
  } else {
    const auto [before, after] = without_header(piece, fields_of(piece));
    lines(piece, before);
    lines(piece, after);
  }
  flush();
}

void entry_parser::parse_rows(const input_piece& piece, const entry_layout& layout) {
  const auto row = [&](std::string_view text, std::size_t) {
    if (skipped(text)) return;
    ++rows_also_;
    bool more = false;
    auto rest = text;
    const auto id = checked_field(piece, rest, layout.separator, more, unquoted_[0]);
    const int s = side(row_field());
    std::uint64_t n = 0;
    if (number(piece, row_field(), id, n)) {
      if (!ids_[s].accepts(n)) leave_dense(s);
      ids_[s].index(n);
    } else {
      ids_[s].index(id.text);
    }
  };
  const auto& of = layout.files.empty() ? usual_file_ : layout.files[piece.file_index()];
  const auto [before, after] = without_header(piece, of);
  for_each_line(before, row);
  for_each_line(after, row);
}

void entry_parser::take_range(std::uint64_t begin, std::uint64_t end, bool rows) {
  const int s = side(rows ? row_field() : 1 - row_field());
  if (begin < end && ids_[s].numeric() && !ids_[s].accepts(end - 1)) leave_dense(s);
  if (ids_[s].numeric()) return ids_[s].mention(begin, end);
  for (auto n = begin; n < end; ++n) ids_[s].index(std::string_view(std::to_string(n)));
}

void entry_parser::take_entry(std::uint64_t first, std::uint64_t second, double value) {
  if (numeric_) return add_numbers(first, second, value);
  const std::uint64_t id[] = {first, second};
  const std::string text[] = {std::to_string(first), std::to_string(second)};
  for (int f = 0; f < 2; ++f) {
    if (ids_[side(f)].numeric()) fresh_[f][fresh_count_] = id[f];
    else fresh_name_[f].push_back(text[f]);
  }
  add_fresh(value);
  flush();  // names point into the texts
}

void entry_parser::take_own(const own_entries& own) {
  const own_entries::side* const sides[] = {&own.rows, &own.columns};
  if (!own.rows.numeric || !own.columns.numeric) {
    if (options_.ids == entry_options::id_kind::number)
      throw data_error(own.source + ": found ids that are names, want numbers");
    make_names();
  }
  const auto count = own.rows.numeric ? own.rows.numbers.size() : own.rows.name.size();
  std::vector<std::string> numbers(numeric_ ? 0 : 2 * batch);  // as names, which are views until flush
  for (std::size_t k = 0; k < count; ++k) {
    const double value = own.values.empty() ? 1 : own.values[k];
    if (!std::isfinite(value) || (options_.non_negative && value < 0))
      throw data_error(own.source + ":" + std::to_string(k + 1) + ": found " + number_text(value) + ", want a " +
                       (options_.non_negative ? "number of at least 0" : "finite number"));
    const auto slot = fresh_count_;
    for (int f = 0; f < 2; ++f) {
      const auto& ids = *sides[f];
      if (numeric_) {
        fresh_[f][slot] = ids.numbers[k];
      } else if (!ids.numeric) {
        fresh_name_[f].push_back(ids.names[ids.name[k]]);
      } else {
        auto& text = numbers[f * batch + slot];
        text = std::to_string(ids.numbers[k]);
        fresh_name_[f].push_back(text);
      }
    }
    add_fresh(value);
  }
  flush();
}

void entry_parser::take_row(std::uint64_t id) {
  ++rows_also_;
  take_range(id, id + 1, true);
}

local_entries entry_parser::take() {
  flush();
  local_entries out;
  out.rows = ids_[side(row_field())].take_sorted();
  if (!use_.one_dictionary) out.columns = ids_[1 - row_field()].take_sorted();
  out.entries = std::move(entries_);
  return out;
}

}  // namespace paracel
