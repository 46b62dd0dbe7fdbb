// SPDX-License-Identifier: BSD-3-Clause
//
// The parsers of Paracel 0.3, for gen_parser.
#pragma once

#include <algorithm>

#include <paracel/error.hpp>
#include <paracel/graph_loading.hpp>

#include "../paracel_types.hpp"
#include "../utils.hpp"

namespace paracel {

/// Fields between separators: "a b c" are a, b, c.
inline const auto parser_a = [](const str_type& line, char separator = ' ') { return str_split(line, separator); };

/// The same as integers.
inline const auto parser_a_int = [](const str_type& line, char separator = ' ') {
  list_type<int> numbers;
  for (const auto& field : str_split(line, separator)) numbers.push_back(std::stoi(field));
  return numbers;
};

/// The first field, then the second one split at another separator: "a b:0.1|c:0.2" are a, b:0.1, c:0.2.
inline const auto parser_b = [](const str_type& line, char separator1 = ' ', char separator2 = ' ') {
  const auto parts = str_split(line, separator1);
  if (parts.size() < 2) throw data_error("found \"" + line + "\", want two fields");
  auto fields = str_split(parts[1], separator2);
  fields.insert(fields.begin(), parts[0]);
  return fields;
};

}  // namespace paracel
