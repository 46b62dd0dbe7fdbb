// SPDX-License-Identifier: BSD-3-Clause
//
// Rows of an id and numbers: factors, centres, named dense vectors, a number for each vertex.
//
//     17<tab>0.25|-1.5|3        17,0.25,-1.5,3        a17 0.25 -1.5 3        AL,0.1666
//
// The id ends at the first tab, comma, semicolon or blank, or, if there is none, at the first bar; the numbers are
// separated by any one of these and the blanks around it, or by blanks. Fields may be in double quotes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/id_list.hpp>
#include <paracel/sparse.hpp>

namespace paracel {

struct vector_rows {
  id_list ids;                   ///< in input order; numbers if all of them are, on every worker alike
  std::size_t columns = 0;       ///< numbers per row
  std::vector<double> value;     ///< rows() * columns
  std::uint64_t first_row = 0;   ///< rows of the workers with lower ranks
  std::uint64_t rows_total = 0;  ///< rows of all workers

  [[nodiscard]] std::size_t rows() const noexcept { return ids.size(); }
  [[nodiscard]] std::span<const double> row(std::size_t i) const {
    return std::span(value).subspan(i * columns, columns);
  }
};

struct vector_options {
  std::size_t columns = 0;    ///< 0: as in the first row
  bool everywhere = false;    ///< every worker gets all rows
  bool with_ids = true;       ///< false: there is no id, the number of a row among all is its id
  bool skip_last = false;     ///< the last field is something else, which is ignored
  bool distinct_ids = false;  ///< an id that occurs twice is an error. Cost: every worker receives all ids
  /// Whether the first line of each file is a header; automatic: when none of its fields, the id aside, is a number.
  entry_options::header_rule header = entry_options::header_rule::automatic;
};

/// Loads rows; each worker has those of its byte range. Blank lines are skipped, \r\n accepted.
/// Throws: data_error file:line:column, the same on every worker: a row of another width, anything that is not a finite
///         number, an empty id, no rows.
/// Blocks: a collective. Cost: each worker reads its share of the bytes; with `everywhere` all numbers are sent to all.
vector_rows load_vectors(Comm comm, const std::vector<std::string>& files, const vector_options& options = {});

/// The same for text read from `file`; for tests and fuzzing.
vector_rows parse_vectors(const std::string& file, std::string_view text, const vector_options& options = {});

}  // namespace paracel
