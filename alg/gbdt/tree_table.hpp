// SPDX-License-Identifier: BSD-3-Clause
//
// Rows for decision trees: numbers that may be missing, labels that may be words, weights, categories. Read from CSV
// (with a header or without), libsvm or .npy, each worker its part of the lines.
//
// Values are kept as float, which is what the trees compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/schema.hpp>

namespace paracel::alg {

/// Categories are integers from 0 to this number: every one is a float.
inline constexpr std::uint32_t greatest_category = (1U << 24U) - 1;

struct table_options {
  std::string target;                 ///< CSV with a header: the label's field; default: the last
  std::vector<std::string> features;  ///< CSV with a header: the features' fields, in this order; default: all others
  std::string weight;                 ///< a field: its name, or its number in the line, from 0; libsvm: the index - 1
  std::vector<std::string> categorical;  ///< features: names or such numbers
  char separator = 0;                    ///< CSV; 0: comma, semicolon, tab or blank, as in the first line
  bool words = false;                    ///< labels are classes, whatever they are called
  std::vector<std::string> classes;      ///< the only ones that are allowed; empty: any
  bool without_label = false;            ///< the label may be missing, and is not read
  std::size_t columns = 0;               ///< of a model: as many features; 0: as in the input
  std::vector<std::string> names;        ///< of a model trained with a header: the features
};

struct table_rows {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> value;          ///< rows * columns; NaN: missing
  std::vector<double> label;         ///< a number, or the place in `classes`; empty without labels
  std::vector<double> weight;        ///< empty: 1 each
  std::vector<bool> categorical;     ///< by column
  std::vector<std::string> names;    ///< with a header: of the columns
  std::vector<std::string> classes;  ///< in order: of numbers by value, of words by bytes
  std::uint64_t first_row = 0;       ///< rows of the workers with lower ranks
  std::uint64_t rows_total = 0;

  [[nodiscard]] std::span<const float> row(std::size_t i) const {
    return std::span(value).subspan(i * columns, columns);
  }
};

/// Adds target, features, separator, weight, categorical.
void add_table_keys(config_schema& schema);
/// The values of those keys. Throws: config_error.
table_options table_options_of(const config& from);

/// Loads a table; classes are those of all workers. A missing value is an empty field or one of NA, nan, NaN, null, ?
/// (not in libsvm, where what is not written is 0, and not in .npy). The classes 1, 1.0 and +1 are the same.
/// Throws: data_error `file:line:column: found ..., want ...`, or about a row, the same on every worker.
/// Blocks: a collective. Cost: 4 bytes a value, also of sparse rows.
table_rows load_table(Comm comm, const std::vector<std::string>& files, const table_options& options);

}  // namespace paracel::alg
