// SPDX-License-Identifier: BSD-3-Clause
//
// The fast path for ordinary lines of entries, in one pass over the bytes. All others are left to
// entry_parser::line, which reports what is wrong with them: the function for a line returns the start of the next one,
// or null without side effects. Every line has its line end, which ends each search.
#include "load/format/entry_parser.hpp"

#include <cstring>

#include "core/number_parsing.hpp"

namespace paracel {

namespace {

inline const char* skip_blanks(const char* p) noexcept {
  while (is_blank(*p)) ++p;
  return p;
}

inline const char* skip_word(const char* p) noexcept {
  while (!is_blank(*p) && *p != '\n' && *p != '\r') ++p;
  return p;
}

/// Digits at `at`, followed by some other byte. False when it is not a canonical 64-bit number.
inline bool take_digits(const char*& at, std::uint64_t& out) noexcept {
  const char* p = at;
  std::uint64_t value = static_cast<unsigned char>(*p) - std::uint64_t{'0'};
  if (value > 9) return false;
  ++p;
  for (;;) {
    const std::uint64_t digit = static_cast<unsigned char>(*p) - std::uint64_t{'0'};
    if (digit > 9) break;
    if (p - at >= 19) {
      // The twentieth digit, and no more.
      if (p - at > 19 || value > (~std::uint64_t{0} - digit) / 10) return false;
    }
    value = value * 10 + digit;
    ++p;
  }
  if (*at == '0' && p - at > 1) return false;
  out = value;
  at = p;
  return true;
}

/// The place after the line end at `p`; null if there is none.
inline const char* behind_line_end(const char* p) noexcept {
  if (*p == '\r') ++p;
  return *p == '\n' ? p + 1 : nullptr;
}

inline const char* next_line(const char* p, const char* end) noexcept {
  return static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p))) + 1;
}

}  // namespace

/// Whether there is a value at `at` that is allowed; `at` is then past it.
inline bool entry_parser::quick_value(const char*& at, const char* end, double& value) const {
  const auto* behind = at;
  if (!read_short_number(behind, static_cast<std::size_t>(end - at), value)) {
    const auto reading = read_number(at, end);
    if (reading.outcome != number_outcome::ok) return false;
    value = reading.value;
    behind = reading.end;
  }
  if (value < 0 && options_.non_negative && options_.values != entry_options::value_rule::ignore) return false;
  at = behind;
  return true;
}

/// The value at `at` and what follows it: with `more_fields`, further fields, which are ignored.
inline const char* entry_parser::value_and_line_end(const char* at, const char* end, bool more_fields,
                                                    double& value) const {
  const bool blanks = layout_.separator == ' ';
  if (blanks) at = skip_blanks(at);
  if (!quick_value(at, end, value)) return nullptr;
  if (more_fields && (*at == layout_.separator || (blanks && *at == '\t'))) return next_line(at, end);
  return behind_line_end(at);
}

inline const char* entry_parser::numbers_line(const char* at, const char* end) {
  const bool blanks = layout_.separator == ' ';
  const auto is_separator = [&](char c) { return c == layout_.separator || (blanks && c == '\t'); };
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  double value = 1;
  const char* p = at;
  if (!take_digits(p, first) || !is_separator(*p)) return nullptr;
  ++p;
  if (blanks) p = skip_blanks(p);
  if (!take_digits(p, second)) return nullptr;
  if (is_separator(*p)) {
    if (options_.values == entry_options::value_rule::ignore) p = next_line(p, end);
    else p = value_and_line_end(p + 1, end, true, value);
  } else if (*p == ':' || *p == '|') {
    p = value_and_line_end(p + 1, end, false, value);
  } else {
    p = options_.values == entry_options::value_rule::need ? nullptr : behind_line_end(p);
  }
  if (p != nullptr) add_numbers(first, second, value);
  return p;
}

inline const char* entry_parser::names_line(const char* at, const char* end) {
  const char separator = layout_.separator;
  const bool blanks = separator == ' ';
  const auto is_separator = [&](char c) { return c == separator || (blanks && c == '\t'); };
  // Comments, quotes, and blanks around a name are left to the slow path, as is what may be a name or a name and a
  // value.
  const auto begins_name = [&](char c) {
    return !is_blank(c) && c != '"' && c != '\n' && c != '\r' && !is_separator(c);
  };
  const char* p = at;
  if (!begins_name(*p) || *p == '#' || *p == '%' || (*p == '/' && p[1] == '/')) return nullptr;
  while (!is_separator(*p) && *p != '\n') ++p;
  if (*p == '\n' || is_blank(p[-1])) return nullptr;
  const std::string_view first(at, static_cast<std::size_t>(p - at));
  ++p;
  if (blanks) p = skip_blanks(p);
  const char* const begin = p;
  if (!begins_name(*p)) return nullptr;
  while (!is_separator(*p) && *p != '\n' && *p != '\r' && *p != ':' && *p != '|') ++p;
  if (is_blank(p[-1])) return nullptr;
  const std::string_view second(begin, static_cast<std::size_t>(p - begin));
  double value = 1;
  if (is_separator(*p)) {
    if (options_.values == entry_options::value_rule::ignore) p = next_line(p, end);
    else p = value_and_line_end(p + 1, end, true, value);
  } else {
    p = options_.values == entry_options::value_rule::need ? nullptr : behind_line_end(p);
  }
  if (p == nullptr) return nullptr;
  fresh_name_[0].push_back(first);
  fresh_name_[1].push_back(second);
  add_fresh(value);
  return p;
}

/// first::second, first::second::value, and further fields.
inline const char* entry_parser::colons_line(const char* at, const char* end) {
  const auto is_separator = [](const char* p) { return *p == ':' && p[1] == ':'; };
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  double value = 1;
  const char* p = at;
  if (!take_digits(p, first) || !is_separator(p)) return nullptr;
  p += 2;
  if (!take_digits(p, second)) return nullptr;
  if (!is_separator(p)) {
    p = options_.values == entry_options::value_rule::need ? nullptr : behind_line_end(p);
  } else if (options_.values == entry_options::value_rule::ignore) {
    p = next_line(p, end);
  } else {
    p += 2;
    if (!quick_value(p, end, value)) return nullptr;
    p = is_separator(p) ? next_line(p, end) : behind_line_end(p);
  }
  if (p != nullptr) add_numbers(first, second, value);
  return p;
}

inline const char* entry_parser::quick_libsvm_line(const input_piece& piece, const char* at, const char* end) {
  std::uint64_t row = 0;
  const char* p = at;
  if (!take_digits(p, row) || !is_blank(*p)) return nullptr;
  const std::string_view row_text(at, static_cast<std::size_t>(p - at));
  p = skip_blanks(p);
  for (bool first = true;; first = false) {
    const char* q = p;
    std::uint64_t column = 0;
    double value = 1;
    bool usual = take_digits(q, column) && *q == ':';
    if (usual) {
      ++q;
      if (options_.values == entry_options::value_rule::ignore) q = skip_word(q);
      else usual = quick_value(q, end, value);
    }
    const char* const next_word = skip_blanks(q);
    const char* const next = behind_line_end(next_word);
    if (!usual || (next == nullptr && !is_blank(*q))) {
      if (first) return nullptr;
      const char* const begin = next_line(p, end);
      std::string_view rest(p, static_cast<std::size_t>(begin - p) - 1);
      if (!rest.empty() && rest.back() == '\r') rest.remove_suffix(1);
      libsvm_words(piece, {row_text, at}, rest);
      return begin;
    }
    add_numbers(row, column, value);
    if (next != nullptr) return next;
    p = next_word;
  }
}

inline const char* entry_parser::quick_matrix_line(const char* at, const char* end, const entry_layout::matrix& of) {
  std::uint64_t row = 0;
  std::uint64_t column = 0;
  double value = 1;
  const char* p = at;
  if (!take_digits(p, row) || !is_blank(*p) || row == 0 || row > of.rows) return nullptr;
  p = skip_blanks(p);
  if (!take_digits(p, column) || column == 0 || column > of.columns) return nullptr;
  if (of.pattern) {
    if (options_.values == entry_options::value_rule::need) return nullptr;
  } else if (options_.values == entry_options::value_rule::ignore) {
    p = skip_word(skip_blanks(p));
  } else {
    if (!is_blank(*p)) return nullptr;
    p = skip_blanks(p);
    if (!quick_value(p, end, value)) return nullptr;
  }
  p = behind_line_end(skip_blanks(p));
  if (p == nullptr) return nullptr;
  add_numbers(row, column, value);
  if (of.symmetric && use_.mirror_symmetric && row != column) add_numbers(column, row, value);
  return p;
}

template <class Usual, class Other>
void entry_parser::fast_lines(std::string_view lines, const Usual& usual, const Other& other) {
  const char* const end = lines.data() + lines.size();
  for (const char* at = lines.data(); at != end;) {
    if (const char* const next = usual(at, end)) {
      at = next;
      continue;
    }
    const char* const next = next_line(at, end);
    std::string_view text(at, static_cast<std::size_t>(next - at) - 1);
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    other(text);
    at = next;
  }
}

void entry_parser::fast_lines(const input_piece& piece, std::string_view lines) {
  const auto other = [&](std::string_view text) { line(piece, text); };
  if (layout_.format == entry_format::matrix_market) {
    const auto& of = layout_.matrices[piece.file_index()];
    auto& entries = entries_of_file_[piece.file_index()];
    const auto usual = [&](const char* at, const char* end) -> const char* {
      const auto* const next = numeric_ ? quick_matrix_line(at, end, of) : nullptr;
      entries += next != nullptr ? 1 : 0;
      return next;
    };
    return fast_lines(lines, usual, other);
  }
  if (layout_.format == entry_format::libsvm) {
    const auto usual = [&](const char* at, const char* end) -> const char* {
      return numeric_ ? quick_libsvm_line(piece, at, end) : nullptr;
    };
    return fast_lines(lines, usual, other);
  }
  if (!fields_of(piece).usual())
    return fast_lines(
        lines, [](const char*, const char*) -> const char* { return nullptr; }, other);
  if (layout_.separator == ':') {
    const auto usual = [&](const char* at, const char* end) { return numeric_ ? colons_line(at, end) : nullptr; };
    return fast_lines(lines, usual, other);
  }
  const auto usual = [&](const char* at, const char* end) -> const char* {
    return numeric_ ? numbers_line(at, end) : names_line(at, end);
  };
  fast_lines(lines, usual, other);
}

}  // namespace paracel
