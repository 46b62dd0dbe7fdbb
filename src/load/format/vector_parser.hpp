// SPDX-License-Identifier: BSD-3-Clause
//
// Parses lines of an id and numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/input/input.hpp"
#include "paracel/dense_rows.hpp"
#include "paracel/id_list.hpp"

namespace paracel {

/// What is known of all files before any is read.
struct vector_layout {
  static constexpr std::uint64_t no_header = ~std::uint64_t{0};
  std::vector<std::uint64_t> header;  ///< by file: the byte at which its header begins; empty: none has one
  std::uint64_t columns = 0;          ///< numbers of a row; 0: there is none, or it is unknown
};

class vector_parser {
 public:
  vector_parser(const vector_options& options, vector_layout layout) : options_(options), layout_(std::move(layout)) {
    if (options.columns != 0) layout_.columns = options.columns;
  }

  /// Throws: data_error file:line:column.
  void parse(const input_piece& from);
  /// Makes `parse` fail with `what` at the row of this number, from 0.
  void refuse_row(std::size_t row, const std::string& what) {
    refused_row_ = row;
    refused_what_ = what;
  }

  [[nodiscard]] std::size_t columns() const noexcept { return layout_.columns; }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  [[nodiscard]] bool numeric() const noexcept { return numeric_; }
  [[nodiscard]] std::vector<double>& value() noexcept { return value_; }
  /// Numbers, or names if any worker has names. Consumes the parser.
  [[nodiscard]] id_list ids(bool numeric);

 private:
  void parse_line(const input_piece& from, std::string_view line);
  std::size_t numbers(const input_piece& from, std::string_view line);
  std::string_view take_id(const input_piece& from, std::string_view& line, std::string& unquoted) const;

  vector_options options_;
  vector_layout layout_;
  std::vector<double> value_;
  std::vector<std::uint64_t> numbers_;
  id_list names_ = id_list::empty(false);
  bool numeric_ = true;
  std::size_t rows_ = 0;
  std::size_t refused_row_ = ~std::size_t{0};
  std::string refused_what_;
  std::string unquoted_;
};

/// The beginning of a file, as input_set::head; `offset`: where it begins.
using head_of_rows = std::function<std::string(std::size_t file, std::size_t bytes, std::uint64_t& offset)>;
/// The headers of these files and the width of their first row. Throws: data_error for that row.
vector_layout find_vector_layout(const std::vector<std::string>& names, const head_of_rows& head,
                                 const vector_options& options);

/// The message for an input without a row.
std::string no_vectors(const std::string& file, const vector_options& options);

}  // namespace paracel
