// SPDX-License-Identifier: BSD-3-Clause
//
// Lines of documents, in two formats:
//
//     text      words separated by blanks or tabs
//     libsvm    label index:count index:count ...       index from 1; the label is ignored, and may be missing
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include <paracel/samples.hpp>
#include <paracel/text_input.hpp>

namespace paracel::alg {

/// Calls f(field) for each maximal run of bytes other than blank, tab and carriage return.
template <class F>
void for_each_field(std::string_view line, F&& f) {
  constexpr std::string_view blanks = " \t\r";
  for (auto at = line.find_first_not_of(blanks); at != std::string_view::npos;) {
    const auto end = std::min(line.find_first_of(blanks, at), line.size());
    f(line.substr(at, end - at));
    at = line.find_first_not_of(blanks, end);
  }
}
inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

/// Calls f(line) for each line of a text that is not blank.
template <class F>
void for_each_document(std::string_view text, F&& f) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    if (const auto line = text.substr(0, end); !is_blank(line)) f(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The greatest index: as of samples.
inline constexpr std::uint64_t index_limit = std::uint64_t{1} << 27U;
inline constexpr const char* wrong_index = "want an index from 1 to 134217728 before the colon";

/// A field `index:count`, both integers above 0. `wrong`: the error, if any.
struct word_count_field {
  std::uint64_t index = 0;
  std::uint64_t count = 0;
  const char* wrong = nullptr;
};
inline word_count_field parse_word_count(std::string_view field, std::uint64_t limit) {
  word_count_field out;
  const auto colon = field.find(':');
  if (colon == std::string_view::npos) {
    out.wrong = "want index:count";
    return out;
  }
  double count = 0;
  if (!parse_id(field.substr(0, colon), out.index) || out.index == 0 || out.index > limit) out.wrong = wrong_index;
  else if (!parse_number(field.substr(colon + 1), count) || !(count >= 0 && count <= 2147483647) ||
           std::floor(count) != count)
    out.wrong = "want a whole count after the colon";
  else out.count = static_cast<std::uint64_t>(count);
  return out;
}

/// Whether a line has libsvm format: at least one index:count field, and only the first field may be something else.
inline bool looks_like_libsvm(std::string_view line) {
  std::size_t fields = 0;
  std::size_t pairs = 0;
  bool all = true;
  for_each_field(line, [&](std::string_view field) {
    const bool pair = parse_word_count(field, UINT64_MAX).wrong == nullptr;
    if (fields++ > 0 && !pair) all = false;
    pairs += pair ? 1 : 0;
  });
  return all && pairs > 0;
}

}  // namespace paracel::alg
