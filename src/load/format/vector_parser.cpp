// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/vector_parser.hpp"

#include <charconv>
#include <utility>

#include "core/number_parsing.hpp"
#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

constexpr std::string_view separators = "\t,;| ";

/// As std::to_string writes it: no sign, no leading zero.
bool read_row_id(std::string_view text, std::uint64_t& out) {
  if (text.empty() || (text[0] == '0' && text.size() > 1)) return false;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

}  // namespace

void vector_parser::parse(const input_piece& from) {
  for_each_line(from.text(), [&](std::string_view line, std::size_t) {
    if (line.find_first_not_of(" \t") != std::string_view::npos) parse_line(from, line);
  });
}

id_list vector_parser::ids(bool numeric) {
  if (numeric) return id_list(std::move(numbers_));
  if (!numeric_) return std::move(names_);
  auto names = id_list::empty(false);
  for (const auto n : numbers_) names.push_back(std::string_view(std::to_string(n)));
  return names;
}

void vector_parser::parse_line(const input_piece& from, std::string_view line) {
  const char* const end = line.data() + line.size();
  const auto id = line.substr(0, line.find_first_of(separators));
  if (id.empty()) from.fail(line.data(), "found no id, want an id and numbers");
  std::size_t count = 0;
  for (const char* at = id.data() + id.size(); at != end;) {
    ++at;
    const auto read = read_number(at, end);
    if (read.outcome != number_outcome::ok ||
        (read.end != end && separators.find(*read.end) == std::string_view::npos)) {
      const std::string_view rest(at, static_cast<std::size_t>(end - at));
      from.fail(at,
                "found " + quote_for_error(rest.substr(0, rest.find_first_of(separators))) + ", want a finite number");
    }
    value_.push_back(read.value);
    ++count;
    at = read.end;
  }
  if (first_place_.empty()) {
    if (count == 0) from.fail(line.data(), "found an id alone, want an id and numbers");
    first_place_ = from.place(line.data());
    if (columns_ == 0) columns_ = count;
  }
  if (count != columns_) {
    from.fail(line.data(), "found " + std::to_string(count) + " numbers, want " + std::to_string(columns_));
  }
  std::uint64_t number = 0;
  if (numeric_ && read_row_id(id, number)) {
    numbers_.push_back(number);
    return;
  }
  if (numeric_) {
    names_ = ids(false);
    numbers_.clear();
    numeric_ = false;
  }
  names_.push_back(id);
}

vector_rows parse_vectors(const std::string& file, std::string_view text, const vector_options& options) {
  vector_parser parser(options.columns);
  parser.parse(input_piece(file, text));
  if (parser.first_place().empty()) throw data_error(file + ":1:1: found no line, want an id and numbers");
  vector_rows rows;
  rows.ids = parser.ids(parser.numeric());
  rows.columns = parser.columns();
  rows.value = std::move(parser.value());
  rows.rows_total = rows.rows();
  return rows;
}

}  // namespace paracel
