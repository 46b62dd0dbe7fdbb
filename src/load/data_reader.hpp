// SPDX-License-Identifier: BSD-3-Clause
//
// Turns lines of CSV or libsvm into sample_rows. The text is one file or a part of one; line numbers are worked out
// only when something is wrong, by counting the line ends before it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "paracel/load.hpp"

namespace paracel {

enum class sample_format { csv, libsvm };

/// What the first line of the input that is not blank says about all of it.
struct sample_layout {
  sample_format format = sample_format::csv;
  std::size_t fields = 0;  ///< csv: fields in each line
};

/// Finds the first line of `text` that is not blank; false if there is none.
bool find_layout(std::string_view text, sample_layout& out) noexcept;

class sample_parser {
 public:
  sample_parser(const sample_layout& layout, const sample_options& options);

  /// Parses `lines`, a part of `whole`, which is all of `file`.
  /// Throws: data_error file:line:column.
  void parse(const std::string& file, std::string_view whole, std::string_view lines);
  /// The rows so far; ends the parser's life.
  sample_rows take();

 private:
  struct source {
    const std::string& file;
    std::string_view whole;
  };

  void csv_line(const source& from, std::string_view line);
  void libsvm_line(const source& from, std::string_view line);
  void label(const source& from, std::string_view token);
  [[noreturn]] static void fail(const source& from, const char* at, const std::string& what);
  [[nodiscard]] static double number(const source& from, const char*& at, const char* last, std::string_view stops);

  sample_layout layout_;
  sample_options options_;
  sample_rows rows_;
};

}  // namespace paracel
