// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "load/format/sample_parser.hpp"
#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"

/// Reads a text as two parts, cut at the first line that begins after `cut`. Returns: the error, if there is one.
inline std::string read_in_two(std::string_view text, std::size_t cut, bool careful,
                               const paracel::sample_layout& layout, const paracel::sample_options& options,
                               paracel::sample_rows& rows) {
  const std::string file = "fuzz";
  paracel::sample_parser parser(layout, options);
  if (careful) parser.read_carefully();
  const auto second = paracel::line_begin(text, cut);
  try {
    parser.parse({file, text, text.substr(0, second)});
    parser.parse({file, text, text.substr(second)});
    rows = parser.take();
    return {};
  } catch (const paracel::data_error& e) {
    return e.what();
  }
}
