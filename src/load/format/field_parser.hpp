// SPDX-License-Identifier: BSD-3-Clause
//
// What the fields of a line mean as rows and columns (vertices and vertices) and weights:
//
//     a,b     weight 1
//     a,b:w   a,b|w
//     a,b,w                                    not in mixed lines
//     a,b,c:w,d ...                            in mixed lines: a with b, a with c, a with d; `a` alone means nothing
//
// A name in such a field may contain any character but : and |.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paracel {

/// What is wrong with a field, and where.
struct field_problem {
  const char* at;
  std::string what;
};

/// Appends the fields of a line, separated by runs of commas, semicolons, tabs and blanks.
void split_fields(std::string_view line, std::vector<std::string_view>& fields);

/// Without leading and trailing blanks.
std::string_view trimmed(std::string_view text) noexcept;

/// Throws: field_problem, when it is not an integer from 0 to 2^64 - 1.
std::uint64_t read_id(std::string_view field);
/// Throws: field_problem, when it is not a finite number.
double read_weight(std::string_view field);

struct entry_view {
  std::string_view row;
  std::string_view column;
  double weight = 1;
};

/// Appends the entries of one line. Throws: field_problem.
void read_entries(std::span<const std::string_view> fields, bool mixed, std::vector<entry_view>& entries);

}  // namespace paracel
