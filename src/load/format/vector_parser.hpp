// SPDX-License-Identifier: BSD-3-Clause
//
// Turns lines of an id and numbers into vector_rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/input/input.hpp"
#include "paracel/dense_rows.hpp"
#include "paracel/id_list.hpp"

namespace paracel {

class vector_parser {
 public:
  explicit vector_parser(std::size_t columns) : columns_(columns) {}

  /// Throws: data_error file:line:column.
  void parse(const input_piece& from);

  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  [[nodiscard]] const std::string& first_place() const noexcept { return first_place_; }  // empty: no row
  [[nodiscard]] bool numeric() const noexcept { return numeric_; }
  [[nodiscard]] std::vector<double>& value() noexcept { return value_; }
  /// Numbers, or names if any worker has names. Consumes the parser.
  [[nodiscard]] id_list ids(bool numeric);

 private:
  void parse_line(const input_piece& from, std::string_view line);

  std::size_t columns_;
  std::vector<double> value_;
  std::vector<std::uint64_t> numbers_;
  id_list names_ = id_list::empty(false);
  bool numeric_ = true;
  std::string first_place_;  // of the first row
};

}  // namespace paracel
