// SPDX-License-Identifier: BSD-3-Clause
//
// Turns lines of CSV or libsvm into sample_rows. The input arrives in pieces of whole lines; line numbers are computed
// only for errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/format/category_words.hpp"
#include "load/format/class_labels.hpp"
#include "load/format/missing_values.hpp"
#include "load/format/sample_layout.hpp"
#include "load/input/input.hpp"
#include "paracel/samples.hpp"

namespace paracel {

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
  /// Whether the first line of a file is its header. Throws: data_error when it is not the first file's.
  bool is_header(const input_piece& from, std::string_view line) const;
  /// The rows so far; consumes the parser.
  sample_rows take();

 private:
  void line(const input_piece& from, std::string_view text);
  void quick_lines(const input_piece& from, std::string_view lines);
  const char* quick_csv_line(const char* at, const char* last);
  const char* quick_libsvm_line(const char* at, const char* last);
  bool quick_label(const char*& at, const char* last);
  bool other_number(const char*& at, const char* last, double& out) const;
  void flush();
  static double not_negative(const input_piece& from, std::string_view field, double v);
  [[nodiscard]] double feature(const input_piece& from, std::uint32_t column, std::string_view field, double v) const;
  /// The number of a word in a categorical column of CSV.
  double category(const input_piece& from, std::uint32_t column, std::string_view field, bool quoted);
  bool quick_category(const category_words& words, const char*& at, double& out) const;
  std::uint64_t group(const input_piece& from, std::string_view field, bool quoted = false);
  /// The same for a field that is not empty and has no quotes.
  std::uint64_t quick_group(std::string_view field);
  /// The column of a libsvm index.
  [[nodiscard]] std::uint32_t column_of(std::uint64_t index) const noexcept {
    return static_cast<std::uint32_t>(index - (index > weight_index_ ? 2 : 1));
  }
  [[nodiscard]] std::uint32_t width_of(std::uint64_t index) const noexcept {
    return static_cast<std::uint32_t>(index - (index >= weight_index_ ? 1 : 0));
  }
  [[nodiscard]] std::size_t entries() const noexcept {
    return options_.floats ? rows_.floats.size() : rows_.value.size();
  }
  void csv_line(const input_piece& from, std::string_view line);
  void libsvm_line(const input_piece& from, std::string_view line);
  void label(const input_piece& from, std::string_view token, bool quoted = false);
  void make_room(double done, std::size_t new_values, std::size_t new_rows);

  sample_layout layout_;
  sample_options options_;
  missing_values missing_;
  std::vector<std::uint32_t> role_;        // csv, by field: the feature's column, or a sample_role
  std::vector<category_words> words_;      // csv: of the categorical columns
  std::vector<category_words*> words_of_;  // csv, by column; null: a number
  bool some_words_ = false;                // a column has words
  std::string group_text_;                 // the last one, and its number
  std::uint64_t group_number_ = 0;
  std::uint64_t weight_index_ = UINT64_MAX;  // libsvm
  bool header_ahead_ = false;
  bool careful_ = false;
  sample_rows rows_;
  class_labels classes_;
  double quick_class_[3] = {-1, -1, -1};  // binary: the classes of 0, 1 and -1, once they were seen
  // Entries not yet moved to rows_: appending one by one would check the capacity each time.
  std::vector<std::uint32_t> new_column_;
  std::vector<double> new_value_;
  std::size_t new_entries_ = 0;
};

}  // namespace paracel
