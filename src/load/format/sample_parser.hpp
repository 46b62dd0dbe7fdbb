// SPDX-License-Identifier: BSD-3-Clause
//
// Turns lines of CSV or libsvm into sample_rows. The input comes in pieces of whole lines; line numbers are computed
// only for errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/format/class_labels.hpp"
#include "load/input/input.hpp"
#include "paracel/samples.hpp"

namespace paracel {

enum class sample_format { csv, libsvm };

/// What the beginning of the input tells about all of it.
struct sample_layout {
  sample_format format = sample_format::csv;
  char separator = ',';            ///< csv: the separator; ' ' stands for runs of blanks
  std::size_t fields = 0;          ///< csv: fields in each line
  bool header = false;             ///< csv: the first line names the fields
  std::vector<std::string> names;  ///< csv with a header: of all fields
  std::string place = "?:1:1";     ///< of the first line that is not blank
};

/// Detects the layout from the first non-blank line of `text`; false if there is none. `file` is for messages.
/// Throws: data_error when a quoted field of it is unterminated.
bool find_layout(const std::string& file, std::string_view text, const sample_options& options, sample_layout& out);

class sample_parser {
 public:
  /// Throws: data_error when the options do not match the layout.
  sample_parser(sample_layout layout, const sample_options& options);

  /// The next piece. A piece that begins a file begins with its header, if the layout has one.
  /// Throws: data_error file:line:column.
  void parse(const input_piece& piece);
  /// The next piece follows only blank lines in its file.
  void expect_header() noexcept { header_ahead_ = layout_.header; }
  /// Disables the fast path, which must make no difference: for tests.
  void read_carefully() noexcept { careful_ = true; }
  /// The rows so far; ends the parser's life.
  sample_rows take();

 private:
  enum : std::uint32_t { not_read = 0xffffffff, is_label = 0xfffffffe };

  void plan_fields();
  void line(const input_piece& from, std::string_view text);
  void quick_lines(const input_piece& from, std::string_view lines);
  const char* quick_csv_line(const char* at, const char* last);
  const char* quick_libsvm_line(const char* at, const char* last);
  bool quick_label(const char*& at, const char* last);
  void flush();
  void csv_line(const input_piece& from, std::string_view line);
  void libsvm_line(const input_piece& from, std::string_view line);
  bool is_header(const input_piece& from, std::string_view line) const;
  void label(const input_piece& from, std::string_view token, bool quoted = false);
  void make_room(double done, std::size_t new_values, std::size_t new_rows);

  sample_layout layout_;
  sample_options options_;
  std::vector<std::uint32_t> role_;  // csv, by field: the feature's column, or one of the above
  bool header_ahead_ = false;
  bool careful_ = false;
  sample_rows rows_;
  class_labels classes_;
  // Entries not yet moved to rows_: appending one by one would check the capacity each time.
  std::vector<std::uint32_t> new_column_;
  std::vector<double> new_value_;
  std::size_t new_entries_ = 0;
};

}  // namespace paracel
