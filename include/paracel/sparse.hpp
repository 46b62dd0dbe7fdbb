// SPDX-License-Identifier: BSD-3-Clause
//
// A sparse matrix spread over the workers by rows: ratings, similarities, documents, weighted links.
//
// Rows are numbered 0, 1, ... in ascending order of their ids, over all workers; each worker has a range of them, cut
// so that the entries are balanced. So a row's number, and every random number derived from it, does not depend on
// the number of workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/id_list.hpp>

namespace paracel {

/// The format of a line (`row, column` and perhaps `value`, and further fields that are ignored).
enum class entry_format {
  /// Detected from the first line: %%MatrixMarket, two or more index:value after an id (libsvm), or its separator (the
  /// first of tab, comma, semicolon, blank, | and :: that occurs).
  automatic,
  /// coordinate, real | integer | pattern, general | symmetric. All its rows and columns exist, empty ones too.
  matrix_market,
  /// a,b  a,b,w  a,b:w  a,b|w and the same with other separators; further fields are ignored. Fields may be in double
  /// quotes.
  fields,
  /// row index:value ...   One row per line, the first field is the row's id; a row may be empty. Indices are
  /// numbers.
  libsvm,
};

/// The meaning of duplicate entries: the sum of their values in input order, one entry for each (all are kept, side by
/// side, in that order), the last one of the input, a data_error, the least or the greatest value.
enum class duplicate_rule { sum, keep, last, refuse, min, max };

/// Whether loaded data is cached in binary form, and read instead of the text while the files are unchanged.
struct load_cache_options {
  bool on = false;
  std::string folder;  ///< visible to all workers; empty: .paracel_cache next to the first file
};

/// Entries that a worker has in memory, to be loaded in place of files. Ids are numbers if both sides of all workers
/// have numbers, otherwise names. Lifetime: what it refers to, until the load has ended.
struct own_entries {
  /// The ids of one side: a number for each entry, or names and for each entry the index of one.
  struct side {
    std::span<const std::uint64_t> numbers;
    std::span<const std::string> names;
    std::span<const std::uint32_t> name;
    bool numeric = true;
  };
  side rows;
  side columns;
  std::span<const double> values;  ///< empty: all are 1
  std::string source = "entries";  ///< what messages call them
};

struct entry_options {
  /// Not null: these are this worker's entries, no file is read, and files, formats, rows_also and the cache must not
  /// be asked for. On all workers or on none.
  const own_entries* own = nullptr;
  entry_format format = entry_format::automatic;
  /// Swaps rows and columns: rows are the second field (Paracel's smap).
  bool transpose = false;
  /// Whether ids are 64-bit numbers or names. `automatic`: numbers if every id on every worker is written as
  /// std::to_string would write it, otherwise names; so 7 and 07 stay distinct.
  enum class id_kind { automatic, number, name } ids = id_kind::automatic;
  duplicate_rule duplicates = duplicate_rule::sum;
  /// Lines must have a value (`need`), may have one (`take`: default 1), or values are not read (`ignore`).
  enum class value_rule { need, take, ignore } values = value_rule::take;
  /// Rejects values below 0, with their position, if values are read.
  bool non_negative = false;
  /// Files whose first field names rows (of a graph: vertices) that may have no entries; empty: none.
  std::vector<std::string> rows_also;
  /// Whether the first line of each file, blank lines and comments aside, is a header. `automatic`: if it is the only
  /// one without numbers where the others have them; doc/loading.md has the rule. A line that cannot be decided on is
  /// refused. Of libsvm only `yes` makes one.
  enum class header_rule { no, yes, automatic } header = header_rule::automatic;
  /// Whether lines that begin with #, % or // are comments, which are skipped.
  bool comments = true;
  /// The fields of row, column and, optionally, value: names of the header, or numbers from 0. Names imply a header in
  /// each file, which may have its own order. Default: the first three.
  std::vector<std::string> columns{};
  load_cache_options cache{};
};

/// This worker's rows of a sparse matrix.
struct sparse_rows {
  /// Rows of worker w: numbers [row_first[w], row_first[w + 1]). One more element than workers.
  std::vector<std::uint64_t> row_first{0, 0};
  id_list row_ids;                           ///< of this worker's rows, ascending
  id_list column_ids;                        ///< of the columns that have an entry here, ascending
  std::vector<std::uint64_t> column_number;  ///< their numbers among the columns of all workers, ascending
  std::uint64_t columns_total = 0;           ///< columns of all workers
  /// Worker w is responsible for columns [column_first[w], column_first[w + 1]): it holds their ids, whichever workers
  /// have entries there.
  std::vector<std::uint64_t> column_first{0, 0};
  id_list column_share;                 ///< the ids of this worker's, ascending
  std::uint64_t entries_total = 0;      ///< entries of all workers
  std::vector<std::uint64_t> begin{0};  ///< row i is [begin[i], begin[i + 1]) of column and value
  std::vector<std::uint32_t> column;    ///< index into column_ids, ascending in a row
  std::vector<double> value;

  [[nodiscard]] std::size_t rows() const noexcept { return begin.size() - 1; }
  [[nodiscard]] std::uint64_t rows_total() const noexcept { return row_first.back(); }
  [[nodiscard]] std::span<const std::uint32_t> columns_of(std::size_t i) const {
    return std::span(column).subspan(begin[i], begin[i + 1] - begin[i]);
  }
  [[nodiscard]] std::span<const double> values_of(std::size_t i) const {
    return std::span(value).subspan(begin[i], begin[i + 1] - begin[i]);
  }

  /// Calls parts(member) for each member. `self`: const or not.
  template <class Parts, class Self>
  static void visit_parts(Parts&& parts, Self& self) {
    parts(self.row_first);
    id_list::visit_parts(parts, self.row_ids);
    id_list::visit_parts(parts, self.column_ids);
    parts(self.column_number);
    parts(self.columns_total);
    parts(self.column_first);
    id_list::visit_parts(parts, self.column_share);
    parts(self.entries_total);
    parts(self.begin);
    parts(self.column);
    parts(self.value);
  }
};

/// Loads a sparse matrix. Every worker must call it, with the same arguments; each reads its byte range and sends the
/// entries to the workers that own their rows.
/// Throws: data_error file:line:column, the same on every worker (the first in rank order); with a cache also
/// config_error, when its folder cannot be used, or an input is standard input.
/// Blocks: a collective. Cost: each entry is sent once, in rounds of at most 64 MB a worker.
sparse_rows load_sparse(Comm comm, const std::vector<std::string>& files, const entry_options& options = {});

/// A matrix by its rows, and again by its columns: each worker has a range of both.
struct sparse_both_ways {
  sparse_rows rows;
  sparse_rows columns;  ///< as load_sparse returns it with `transpose` flipped
};
/// Both of them, from a single read of the files. Cost: each entry is sent twice.
sparse_both_ways load_sparse_both_ways(Comm comm, const std::vector<std::string>& files,
                                       const entry_options& options = {});

/// Whether the first entry of the input has a value, as load_sparse reads it; true with standard input, which can be
/// read only once. Throws: as load_sparse. Blocks: a collective. Cost: rank 0 reads the beginning of each file.
bool entries_have_values(Comm comm, const std::vector<std::string>& files, const entry_options& options = {});

/// Ids of all columns (or rows), in the order of their numbers, on every worker. A collective.
/// Cost: O(all ids) memory and traffic a worker.
id_list all_column_ids(Comm comm, const sparse_rows& rows);
id_list all_row_ids(Comm comm, const sparse_rows& rows);

}  // namespace paracel
