// SPDX-License-Identifier: BSD-3-Clause
//
// What is known of the entries of an input before any is read: the format and the separator, from its first line, and
// of each file the header and the fields that matter. One worker decides it for all from the beginnings of the files,
// so that it does not depend on where the parts of the workers begin.
//
// A header, if `entry_options::header` is automatic, is a first line without a number or an empty field
//   * whose third field is the only one of the third fields that is no number, or
//   * whose ids are the only ones that are no numbers: both of them in a graph, either in a matrix.
// Otherwise the line is an entry, unless its fields are the usual names of fields (`source,target`) that are no ids in
// the lines after it: then nothing can be known, and it is refused.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/input/input.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

struct entry_layout {
  entry_format format = entry_format::fields;  ///< never automatic
  char separator = ',';  ///< of fields; a blank stands for runs of blanks and tabs, a colon for two of them
  struct matrix {
    std::uint64_t header_bytes = 0;  ///< entries begin after them
    std::uint64_t size_line = 0;     ///< the line of the header that has the sizes, from 1
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
    std::uint64_t entries = 0;
    bool symmetric = false;
    bool pattern = false;
  };
  std::vector<matrix> matrices;  ///< MatrixMarket: by file
  /// Places of the fields in a file of another format.
  struct fields_file {
    static constexpr std::uint64_t no_header = ~std::uint64_t{0};
    static constexpr std::uint64_t no_field = ~std::uint64_t{0};
    std::uint64_t header = no_header;                 ///< the byte of the file at which its header begins
    std::uint64_t only_numbers = 0;                   ///< 1: a header if the ids of all workers are numbers
    std::array<std::uint64_t, 3> column = {0, 1, 2};  ///< the fields of row, column and value
    [[nodiscard]] bool usual() const noexcept { return column == std::array<std::uint64_t, 3>{0, 1, 2}; }
  };
  std::vector<fields_file> files;  ///< by file; empty: none has a header, and each has the first three fields
  /// The first header, for messages: file:line, and the line.
  std::string header_place;
  std::string header_line;
  bool has_values = false;  ///< the first entry has a value
};

/// The separator and format of a first line. `wanted`: what the caller requested.
entry_layout layout_of(std::string_view first_line, entry_format wanted);

/// Whether a line is blank, or with `comments` begins with #, % or //.
bool without_entry(std::string_view line, bool comments = true) noexcept;

/// What the lines of a file are, where that matters for headers.
enum class entry_role {
  edges,    ///< both ids are of the same kind
  entries,  ///< rows and columns
  rows,     ///< the first field only
};

/// The beginning of a file, in whole lines of at least `bytes` in all, or all of it, without a byte order mark;
/// `offset`: where it begins.
using head_of_file = std::function<std::string(std::size_t file, std::size_t bytes, std::uint64_t& offset)>;

/// The layout of these files. Throws: data_error file:line:column.
entry_layout find_entry_layout(const std::vector<std::string>& names, const head_of_file& head,
                               const entry_options& options, entry_role role);

/// Reads the header of a MatrixMarket file, `head` being its beginning in whole lines, or all of it.
/// Returns false when the header does not end in `head`. Throws: data_error.
bool read_matrix_header(const input_piece& head, entry_layout::matrix& out);

namespace entry_detail {

inline std::string_view without_blanks(std::string_view s) noexcept {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

/// Removes and returns the first run of non-blanks of `rest`.
inline std::string_view next_word(std::string_view& rest) noexcept {
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  std::size_t n = 0;
  while (n < rest.size() && !is_blank(rest[n])) ++n;
  const auto word = rest.substr(0, n);
  rest.remove_prefix(n);
  return word;
}

struct token {
  std::string_view text;  // without quotes
  const char* at;         // where it is in the input
};

/// The field at the front of `rest`, which is advanced past its separator, without the blanks around it. `more`:
/// whether there was a separator. In quotes, unless separators are blanks, bars or colons, it may contain separators
/// and doubled quotes: `unquoted` then has its text. `fail(at, what)` for quotes that are not closed; if it returns,
/// the rest of the line is the field.
template <class Fail>
token next_field(std::string_view& rest, char separator, bool& more, std::string& unquoted, const Fail& fail) {
  const auto skip_blanks = [&] {
    while (!rest.empty() && is_blank(rest.front()) && rest.front() != separator) rest.remove_prefix(1);
  };
  if (separator == ' ') {
    const auto word = next_word(rest);
    while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
    more = !rest.empty();
    return {word, word.data()};
  }
  skip_blanks();
  if (!rest.empty() && rest.front() == '"' && separator != '|' && separator != ':') {
    const char* const opened = rest.data();
    unquoted.clear();
    std::size_t at = 1;
    for (;; ++at) {
      if (at >= rest.size()) {
        fail(opened, "found a quote that is not closed in its line");
        break;
      }
      if (rest[at] == '"' && (at + 1 >= rest.size() || rest[at + 1] != '"')) break;
      if (rest[at] == '"') ++at;
      unquoted += rest[at];
    }
    rest.remove_prefix(std::min(at + 1, rest.size()));
    skip_blanks();
    more = !rest.empty();
    if (more && rest.front() != separator)
      fail(rest.data(), "found " + quote_for_error(rest) + " after a closing quote");
    if (more) rest.remove_prefix(1);
    return {unquoted, opened};
  }
  const auto end = separator == ':' ? rest.find("::") : rest.find(separator);
  more = end != std::string_view::npos;
  const auto text = without_blanks(rest.substr(0, end));
  rest.remove_prefix(more ? end + (separator == ':' ? 2 : 1) : rest.size());
  return {text, text.data()};
}

}  // namespace entry_detail

}  // namespace paracel
