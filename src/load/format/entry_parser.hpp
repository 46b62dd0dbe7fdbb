// SPDX-License-Identifier: BSD-3-Clause
//
// Parses lines of `row column value` in the formats of entry_format into what one worker keeps of them: a dictionary of
// the ids that it saw and a pair of their indices for each entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/chunked_vector.hpp"
#include "load/format/entry_layout.hpp"
#include "load/ids/id_interner.hpp"
#include "load/input/input.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

/// What one worker keeps of the lines that it has read.
struct local_entries {
  id_interner::sorted_ids rows;     ///< entries are indices into it
  id_interner::sorted_ids columns;  ///< the same; not used when rows and columns are the same things (a graph)
  chunked_vector entries;
};

/// What to keep of lines.
struct entry_use {
  bool values = true;
  bool one_dictionary = false;   ///< rows and columns are the same things
  bool mirror_symmetric = true;  ///< a symmetric matrix yields both halves
  /// All rows and columns of MatrixMarket files are added by take_range: their numbers are dense, however few entries
  /// there are.
  bool whole_matrices = false;
  /// Size of the text that this parser will see, or 0 for unknown: determines the limit of dense ids.
  std::uint64_t expected_bytes = 0;
};

/// Turns lines into local_entries.
/// Thread-safety: none
class entry_parser {
 public:
  entry_parser(const entry_layout& layout, const entry_options& options, const entry_use& use);

  /// Parses lines of a file of entries.
  void parse(const input_piece& piece);
  /// Takes the first field of each line as a row without entries. `layout`: of these files.
  void parse_rows(const input_piece& piece, const entry_layout& layout);
  /// Adds the numbers [begin, end) as rows, or as columns, without entries.
  void take_range(std::uint64_t begin, std::uint64_t end, bool rows);
  /// Adds an entry whose ids are numbers.
  void take_entry(std::uint64_t first, std::uint64_t second, double value);
  /// Adds entries that are in memory. Throws: data_error for a value that is not allowed.
  void take_own(const own_entries& own);
  /// Adds a row without entries; counted by rows_also.
  void take_row(std::uint64_t id);
  /// From now on, and retroactively, all ids are names.
  void make_names();

  [[nodiscard]] bool numeric() const noexcept { return numeric_; }
  /// Lines that were skipped because they are comments.
  [[nodiscard]] std::int64_t comments() const noexcept { return comments_; }
  /// Lines that parse_rows has taken, and rows of take_row.
  [[nodiscard]] std::int64_t rows_also() const noexcept { return rows_also_; }
  /// Entries of each MatrixMarket file that were read here.
  [[nodiscard]] const std::vector<std::int64_t>& entries_of_file() const noexcept { return entries_of_file_; }
  /// Consumes the parser.
  local_entries take();

 private:
  using token = entry_detail::token;
  template <class Usual, class Other>
  void fast_lines(std::string_view lines, const Usual& usual, const Other& other);
  void fast_lines(const input_piece& piece, std::string_view lines);
  const char* numbers_line(const char* at, const char* end);
  const char* names_line(const char* at, const char* end);
  const char* colons_line(const char* at, const char* end);
  const char* quick_libsvm_line(const input_piece& piece, const char* at, const char* end);
  const char* quick_matrix_line(const char* at, const char* end, const entry_layout::matrix& of);
  bool quick_value(const char*& at, const char* end, double& value) const;
  const char* value_and_line_end(const char* at, const char* end, bool more_fields, double& value) const;
  void lines(const input_piece& piece, std::string_view lines);
  void line(const input_piece& piece, std::string_view line);
  bool skipped(std::string_view line);
  void selected_line(const input_piece& piece, std::string_view line, const entry_layout::fields_file& of);
  void fields_line(const input_piece& piece, std::string_view line);
  void libsvm_line(const input_piece& piece, std::string_view line);
  bool libsvm_words(const input_piece& piece, token row, std::string_view rest);
  void matrix_line(const input_piece& piece, std::string_view line, const entry_layout::matrix& of);
  [[nodiscard]] const entry_layout::fields_file& fields_of(const input_piece& piece) const {
    return layout_.files.empty() ? usual_file_ : layout_.files[piece.file_index()];
  }

  /// Where the ids of a field are kept: 0 the first, 1 the second.
  int side(int field) const noexcept { return use_.one_dictionary ? 0 : field; }
  /// The field that names rows.
  int row_field() const noexcept { return options_.transpose ? 1 : 0; }
  void add(const input_piece& piece, token first, token second, double value);
  /// Whether the text is a numeric id; if not, all ids become names, or it is an error.
  bool number(const input_piece& piece, int field, const token& id, std::uint64_t& out);
  void add_fresh(double value) {
    if (use_.values) fresh_value_[fresh_count_] = value;
    if (++fresh_count_ == batch) flush();
  }
  void add_numbers(std::uint64_t first, std::uint64_t second, double value) {
    fresh_[0][fresh_count_] = first;
    fresh_[1][fresh_count_] = second;
    add_fresh(value);
  }
  /// Assigns indices to the ids read last.
  void flush();
  void leave_dense(int side);

  entry_layout layout_;
  entry_options options_;
  entry_use use_;
  bool second_stays_number_;  // indices of libsvm
  bool numeric_ = true;
  entry_layout::fields_file usual_file_;
  std::int64_t comments_ = 0;
  std::int64_t rows_also_ = 0;
  id_interner ids_[2];
  chunked_vector entries_;
  // Ids read and not yet in entries_, of each field either numbers or names: looked up in batches. Names point into the
  // piece. Numbers and values are in arrays of that size.
  static constexpr std::size_t batch = 4096;
  std::size_t fresh_count_ = 0;
  std::vector<std::uint64_t> fresh_[2];
  std::vector<std::string_view> fresh_name_[2];
  std::vector<double> fresh_value_;
  std::vector<std::uint32_t> fresh_index_[2];
  std::vector<std::int64_t> entries_of_file_;
  std::string unquoted_[4];  // of row, column, value and others
};

}  // namespace paracel
