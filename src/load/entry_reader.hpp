// SPDX-License-Identifier: BSD-3-Clause
//
// Lines of `row column value` in the formats of entry_format, read into what one worker keeps of them: a dictionary of the
// ids that it met and a pair of their indices for each entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "load/id_dictionary.hpp"
#include "paracel/comm.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

/// What the input says about all of its lines: by the first line, and by the header of each MatrixMarket file.
struct entry_layout {
  entry_format format = entry_format::fields;  ///< never automatic
  char separator = ',';                        ///< of fields; a blank stands for runs of blanks and tabs
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
};

/// The separator and format that a first line shows. `wanted`: what the caller asked for.
entry_layout layout_of(std::string_view first_line, entry_format wanted);

/// Whether a line has nothing but blanks, or is a comment: # alone, or # and a blank.
bool without_entry(std::string_view line) noexcept;

/// Reads the header of a MatrixMarket file. `head` has the beginning of the file, whole lines.
/// Returns false when the header does not end in `head`. `fail(at, what)` must throw.
using entry_failure = std::function<void(const char* at, const std::string& what)>;
bool read_matrix_header(std::string_view head, entry_layout::matrix& out, const entry_failure& fail);

/// What one worker keeps.
struct local_entries {
  id_dictionary rows;
  id_dictionary columns;             ///< not used when rows and columns are the same things (a graph)
  bool one_dictionary = false;
  std::vector<std::uint32_t> row;    ///< indices in the dictionaries
  std::vector<std::uint32_t> column;
  std::vector<double> value;         ///< empty when values are not kept

  [[nodiscard]] std::size_t size() const noexcept { return row.size(); }
};

/// Turns lines into local_entries.
/// Thread-safety: none
class entry_parser {
 public:
  entry_parser(const entry_layout& layout, const entry_options& options, bool keep_values, bool one_dictionary,
               bool mirror_symmetric);

  /// Parses `lines` of file `file`, which begin at byte `offset` of it. `fail(at, what)` must throw.
  void parse(std::string_view lines, std::size_t file, std::uint64_t offset, const entry_failure& fail);
  /// Takes the first field of each line as a row without entries.
  void parse_rows(std::string_view lines, char separator, const entry_failure& fail);
  /// Takes the numbers [begin, end) as rows, or as columns, without entries.
  void take_range(std::uint64_t begin, std::uint64_t end, bool rows);
  /// From now on, and before, all ids are names.
  void make_names();

  [[nodiscard]] bool numeric() const noexcept { return numeric_; }
  /// Entries of each MatrixMarket file that were read here.
  [[nodiscard]] const std::vector<std::int64_t>& entries_of_file() const noexcept { return entries_of_file_; }
  local_entries take();

 private:
  void fields_line(std::string_view line, const entry_failure& fail);
  void libsvm_line(std::string_view line, const entry_failure& fail);
  void matrix_line(std::string_view line, const entry_layout::matrix& of, const entry_failure& fail);
  /// The side that a field names: 0 the first field, 1 the second.
  id_dictionary& side(int field) noexcept { return ids_[one_dictionary_ ? 0 : field]; }
  std::uint32_t index(int field, std::string_view id, const entry_failure& fail);
  void add(std::string_view first, std::string_view second, double value, const entry_failure& fail);

  entry_layout layout_;
  entry_options options_;
  bool keep_values_;
  bool one_dictionary_;
  bool mirror_symmetric_;
  bool second_stays_number_;  // indices of libsvm
  bool numeric_ = true;
  id_dictionary ids_[2];
  std::vector<std::uint32_t> index_[2];
  std::vector<double> value_;
  std::vector<std::int64_t> entries_of_file_;
  std::string unquoted_[2];
};

/// Reads this worker's share of all files.
/// Throws: data_error file:line:column, the same on every worker. Blocks: a collective.
local_entries read_entries(Comm comm, const std::vector<std::string>& files, const entry_options& options, bool keep_values,
                           bool one_dictionary, bool mirror_symmetric);

}  // namespace paracel
