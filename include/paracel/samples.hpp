// SPDX-License-Identifier: BSD-3-Clause
//
// Reading input files: each worker reads its own byte range, cut at line ends, so that together they read every line
// once. The range depends only on the files, the rank and the number of workers. The workers of a job use the
// functions with a Comm: there rank 0 lists the files and their sizes, so that no line is lost or read twice while
// files grow, appear and disappear. The others list them themselves: for one process, or one file that does not
// change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>

namespace paracel {

/// The files that a name stands for: a file, a folder (all files below it that are not hidden), a glob pattern, or
/// "-", which is standard input. Sorted. Files compressed by gzip or zstd are read like others. Throws: data_error when
/// there is none.
std::vector<std::string> expand(const std::string& name);
/// The same for each of `names`, in their order.
std::vector<std::string> expand(const std::vector<std::string>& names);

/// The lines of part `rank` of `size` parts, without their line ends (\n or \r\n); empty lines are kept.
/// Throws: data_error when a file cannot be read.
/// Cost: reads about 1/size of the bytes.
std::vector<std::string> read_lines(const std::vector<std::string>& names, std::size_t rank = 0, std::size_t size = 1);
std::vector<std::string> read_lines(const std::string& name, std::size_t rank = 0, std::size_t size = 1);

/// Calls `visit` with each of these lines, in order, one at a time.
/// Throws: what `visit` throws, and data_error when a file cannot be read.
/// Cost: as read_lines, but for one line in memory.
void visit_lines(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                 const std::function<void(std::string&&)>& visit);
void visit_lines(const std::string& name, std::size_t rank, std::size_t size,
                 const std::function<void(std::string&&)>& visit);

/// Calls `visit` with runs of whole lines of this part (their line ends included), in order, each of about a
/// megabyte or one line, whichever is more. For programs that look for words rather than lines.
void visit_text(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                const std::function<void(std::string_view)>& visit);

/// Throws data_error `file:line:column: what` for a byte of the run of lines that it was passed with, or its end.
using text_failure = std::function<void(const char* at, const std::string& what)>;
/// The same with such a function: for custom formats.
void visit_text(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                const std::function<void(std::string_view, const text_failure&)>& visit);
/// The same for all workers of `comm` together, each with its part; the launcher shows the progress of a long load.
/// Throws: the same error on every worker, the first in rank order. Blocks: a collective.
void visit_text(Comm comm, const std::vector<std::string>& names,
                const std::function<void(std::string_view, const text_failure&)>& visit);
/// The same where every worker needs all of the text. Standard input is refused.
void visit_whole_text(Comm comm, const std::vector<std::string>& names,
                      const std::function<void(std::string_view, const text_failure&)>& visit);
/// visit_text, line by line, without line ends.
void visit_lines(Comm comm, const std::vector<std::string>& names, const std::function<void(std::string&&)>& visit);

/// Where the fields of samples are in a line: a model keeps it, with the names, so that other files are read alike.
struct sample_fields {
  static constexpr std::uint32_t none = 0xffffffff;
  std::string target;                   ///< CSV with a header: the label's name,
  std::string weight;                   ///< that of the weight,
  std::string group;                    ///< and of the group
  std::vector<std::uint32_t> features;  ///< CSV, .npy: the features' fields, from 0, by column
  std::uint32_t label = none;           ///< CSV, .npy: the label's field,
  std::uint32_t weight_at = none;       ///< that of the weight,
  std::uint32_t group_at = none;        ///< and of the group
  std::uint32_t count = 0;              ///< CSV, .npy: fields of a line; 0: unknown
  char separator = 0;                   ///< CSV: between the fields; 0: unknown, or one field in a line
};

/// Samples with labels: compressed sparse rows, or a dense row-major matrix.
struct sample_rows {
  bool dense = false;
  /// Features. Sparse: one more than the greatest index seen here (other ranks may have seen a greater one).
  std::uint32_t columns = 0;
  std::vector<std::size_t> row_begin{0};  ///< sparse: row i is [row_begin[i], row_begin[i + 1]) of column and value
  std::vector<std::uint32_t> column;      ///< sparse: 0-based, strictly increasing in a row
  std::vector<double> value;              ///< sparse: parallel to column; dense: rows() * columns
  std::vector<float> floats;              ///< the same with sample_options::floats; `value` is then empty
  /// binary: -1 or +1 a row, for the first and the second of `classes`; real: the target; classes: an index into
  /// `classes`; empty when no labels are read
  std::vector<double> label;
  std::vector<double> weight;  ///< with sample_options::weight: of each row
  /// With sample_options::group: the number of each row's group, the XXH3-64 of its text; for numbers up to 2^53, of
  /// their shortest form.
  std::vector<std::uint64_t> group;
  std::size_t row_count = 0;
  bool has_label_zero = false;       ///< binary: a label 0 was read (and became -1)
  bool has_label_minus_one = false;  ///< binary: a label -1 was read
  std::uint64_t first_row = 0;       ///< load_samples: rows of the workers with lower ranks
  std::uint64_t rows_total = 0;      ///< load_samples: rows of all workers
  std::vector<std::string> names;    ///< CSV with a header: the features' names
  sample_fields fields;
  /// Labels of classes: those given in the options, else those found, ascending: by value if all are numbers, else by
  /// bytes. Binary labels: the two, also where only 1, 0 or -1 occurs.
  std::vector<std::string> classes;
  std::vector<std::uint32_t> categorical;  ///< columns that are categories, ascending
  /// The words of categorical columns that have words, ordered like `classes`. A value is then an index into them.
  std::map<std::uint32_t, std::vector<std::string>> words;

  [[nodiscard]] std::size_t rows() const noexcept { return row_count; }
  [[nodiscard]] std::span<const double> dense_row(std::size_t i) const {
    return std::span(value).subspan(i * columns, columns);
  }
  [[nodiscard]] std::span<const float> float_row(std::size_t i) const {
    return std::span(floats).subspan(i * columns, columns);
  }
  [[nodiscard]] std::span<const std::uint32_t> columns_of(std::size_t i) const {
    return std::span(column).subspan(row_begin[i], row_begin[i + 1] - row_begin[i]);
  }
  [[nodiscard]] std::span<const double> values_of(std::size_t i) const {
    return std::span(value).subspan(row_begin[i], row_begin[i + 1] - row_begin[i]);
  }
};

struct sample_options {
  /// The number of features, if known, or 0. CSV: rows must have as many. libsvm: greater indices are dropped.
  std::uint32_t columns = 0;
  /// The greatest accepted libsvm index, 1-based. A vector of that many numbers has 1 GB: a greater index is more
  /// likely an error in the data than a feature.
  std::uint64_t index_limit = std::uint64_t{1} << 27;
  /// Input for prediction: the label may be missing and is not read. CSV then needs `columns`.
  bool without_label = false;
  /// binary: any two labels, or only 1, 0 or -1. real: any finite number. relevance: an integer from 0 to
  /// greatest_relevance. none: every field of a CSV line is a feature; the first field of a libsvm line is skipped
  /// unless it is index:value. classes: any number or text; numbers are the same class if they are equal (1, +1
  /// and 1.0), at most 65,536 classes; in libsvm a text has neither blanks nor colons.
  enum class label_rule { binary, real, none, classes, relevance } label = label_rule::binary;
  static constexpr int greatest_relevance = 30;
  /// Labels of classes: the only ones allowed; empty: any.
  std::vector<std::string> classes{};
  /// CSV: the separator; 0: comma, semicolon or tab, whichever the first line has.
  char separator = 0;
  /// CSV: whether the first line of each file names the fields; automatic: when none of its fields is a number or
  /// empty, the first excepted, or when it has a name that these options ask for.
  enum class header_rule { automatic, yes, no } header = header_rule::automatic;
  /// CSV and .npy: the label's field (default: the last) and the features', in this order (default: all others, except
  /// a first field without a name, which is a row number). Each is a name of the header, or a number from 0.
  std::string target{};
  std::vector<std::string> features{};
  /// What a model was trained with: sample_rows::names and ::fields. They replace `features`. With a header here, too,
  /// fields are matched by name: all features and the target must be there, others are ignored. Otherwise a line must
  /// have as many fields as in training, or only the features, and the label as the last field.
  std::vector<std::string> names{};
  sample_fields fields{};
  /// Features may be missing, and are then NaN: in CSV a field that is empty, NA, nan, NaN, null or ?; in .npy a NaN.
  bool missing = false;
  /// With `missing`: other spellings of a missing feature. Numbers are compared by value, in all formats; words are for
  /// CSV.
  std::vector<std::string> missing_as{};
  /// The field of the rows' weights, which is not a feature: its name or its number from 0 (.npy: the column; libsvm:
  /// the index - 1). Weights must be 0 or more, and not all 0. With `without_label` a header may lack it.
  std::string weight{};
  /// The field of the rows' groups, any text that is not empty, which is no feature either: as `weight`, but of libsvm
  /// "qid", which is `qid:7` after the label.
  std::string group{};
  /// Categorical features, by name or number as for `weight`. Categories are integers from 0 to greatest_category or,
  /// in CSV, words: a feature then has at most 65,536 of them, and its integers are words, too. In CSV an integer
  /// below 0 is a word.
  std::vector<std::string> categorical{};
  /// The categorical columns of a model and their words (none: integers), instead of `categorical`. Unknown words are
  /// missing values.
  std::map<std::uint32_t, std::vector<std::string>> words{};
  static constexpr std::uint32_t greatest_category =
      (1U << 24U) - 1;  ///< floats represent all integers up to it exactly
  /// Stores features as floats, in half the memory: rounded, at most half the greatest float, and not to 0.
  /// load_samples then makes libsvm rows dense, too.
  bool floats = false;
};

/// Part `rank` of `size` of the samples in three formats, detected from the beginning of the first file:
///
///     CSV      feature,feature,...,label            separated by commas, semicolons, tabs or (not with binary labels)
///                                                   blanks; "quoted" or not; a header, if any, in every file
///     libsvm   label index:value index:value ...    index from 1, increasing
///     npy      one row after the other, its last column the label: <f8 <f4 <i8 <i4
///
/// Blank lines and, in libsvm, what follows a # are skipped, \r\n, a byte order mark and a missing last line end
/// accepted; doc/loading.md has the rest. Throws: data_error `file:line:column: found ..., want ...`: not a number,
/// nan, inf, a row of another width, an index out of order, 0 or beyond the limit, a label of neither class, labels -1
/// and 0 in one input; of all parts together, no rows. Cost: about 1/size of the bytes; 200 to 400 MB/s.
sample_rows read_samples(const std::vector<std::string>& names, std::size_t rank = 0, std::size_t size = 1,
                         const sample_options& options = {});

/// The same for all workers of `comm` together: every worker must call it. `columns`, `has_label_*`, `classes` and the
/// width of the rows are agreed on; `first_row` and `rows_total` are filled in. Throws: as read_samples, the same error
/// on every worker; data_error also for binary labels of another number than two. Blocks: a collective.
sample_rows load_samples(Comm comm, const std::vector<std::string>& names, const sample_options& options = {});

/// The same for text read from `file`; for tests and fuzzing.
sample_rows parse_samples(const std::string& file, std::string_view text, const sample_options& options = {});

/// The place, `file:line`, of a row that load_samples read, counted from 0 over all workers; of standard input and .npy
/// `file: row N`, counted from 1. For errors found after loading.
/// Cost: reads the input up to that row. Throws: data_error.
std::string place_of_row(const std::vector<std::string>& names, std::uint64_t row, const sample_options& options = {});

/// The spelling by which sample_rows::classes has a label: that of its value for a number, itself for a text.
std::string class_name(const std::string& label);

}  // namespace paracel
