// SPDX-License-Identifier: BSD-3-Clause
//
// What the first line and the options say of all lines: their format, and what each field is.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/samples.hpp>

namespace paracel {

enum class sample_format { csv, libsvm, npy };

}  // namespace paracel

MSGPACK_ADD_ENUM(paracel::sample_format);

namespace paracel {

/// What the beginning of the input tells about all of it.
struct sample_layout {
  sample_format format = sample_format::csv;
  char separator = ',';            ///< csv: the separator; ' ' stands for runs of blanks
  std::size_t fields = 0;          ///< csv: fields in each line; npy: columns
  bool header = false;             ///< csv: the first line names the fields
  std::vector<std::string> names;  ///< csv with a header: of all fields
  std::string place = "?:1:1";     ///< of the first line that is not blank; npy: the file

  MSGPACK_DEFINE(format, separator, fields, header, names, place)
};

/// Detects the layout from the first non-blank line of `text`; false if there is none. `file` is for messages.
/// Throws: data_error when a quoted field of it is unterminated.
bool find_layout(const std::string& file, std::string_view text, const sample_options& options, sample_layout& out);

/// The role of a field that is not a feature; features have their columns.
enum sample_role : std::uint32_t {
  not_read = 0xffffffff,
  is_label = 0xfffffffe,
  is_weight = 0xfffffffd,
  is_group = 0xfffffffc
};
constexpr bool is_feature(std::uint32_t role) noexcept { return role < is_group; }

/// The roles of the fields of a CSV line, or of the columns of an .npy file.
struct field_plan {
  std::vector<std::uint32_t> role;         ///< by field: a column, or a sample_role
  std::uint32_t columns = 0;               ///< features
  std::vector<std::string> names;          ///< with a header: of the features
  sample_fields fields;                    ///< of these lines, for others
  std::vector<std::uint32_t> categorical;  ///< columns, ascending
};
/// Throws: data_error when the options do not match the layout.
field_plan plan_fields(const sample_layout& layout, const sample_options& options);

/// Weight and categories of libsvm.
struct libsvm_plan {
  std::optional<std::uint64_t> weight;     ///< a field: an index - 1
  std::vector<std::uint32_t> categorical;  ///< columns, ascending: fields without the weight
};
/// Throws: data_error `where: ...`.
libsvm_plan plan_libsvm(const std::string& where, const sample_options& options);

/// Whether a line, not a header, is a sample: neither blank nor, in libsvm, a comment.
bool is_row(const sample_layout& layout, std::string_view line) noexcept;
/// What is wrong with an input, after its name.
inline constexpr const char* no_rows = ": found no row, want samples";

/// Whether samples have labels that are read.
inline bool reads_labels(const sample_options& options) noexcept {
  return !options.without_label && options.label != sample_options::label_rule::none;
}
/// Whether a value is a category, or missing.
inline bool is_category(double v) noexcept {
  return v != v ||
         (v >= 0 && v <= sample_options::greatest_category && v == static_cast<double>(static_cast<std::uint32_t>(v)));
}
/// The error for another one, as it is written; `words`: words are valid, too.
std::string no_category(const std::string& written, bool words = false);
/// Before the group of a libsvm line.
inline constexpr std::string_view group_mark = "qid:";
/// The sample_rows::group for what is written.
std::uint64_t group_of(std::string_view written);
/// Whether a label is a relevance, and the error for another one, as it is written.
inline bool is_relevance(double v) noexcept {
  return v >= 0 && v <= sample_options::greatest_relevance && v == static_cast<double>(static_cast<int>(v));
}
std::string no_relevance(const std::string& written);
/// As sample_options::floats says.
float to_float(double v) noexcept;

}  // namespace paracel
