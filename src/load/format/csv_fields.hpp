// SPDX-License-Identifier: BSD-3-Clause
//
// The fields of a CSV line, quoted or not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/number_parsing.hpp"

namespace paracel {

inline constexpr const char* open_quote =
    "found a quote that does not end in its line, want fields without line breaks: files are "
    "split at line ends";

/// Iterates over the fields of a line. A blank as separator stands for runs of blanks.
class csv_fields {
 public:
  csv_fields(std::string_view line, char separator)
      : at_(line.data()), last_(at_ + line.size()), separator_(separator) {}

  /// The next field, without blanks around it and without quotes. False when its quotes are unterminated.
  bool next(std::string_view& field, bool& quoted) {
    skip_blanks();
    quoted = at_ != last_ && *at_ == '"';
    if (!quoted) {
      const char* begin = at_;
      while (at_ != last_ && *at_ != separator_ && !(separator_ == ' ' && is_blank(*at_))) ++at_;
      const char* end = at_;
      while (end != begin && is_blank(end[-1])) --end;
      field = {begin, static_cast<std::size_t>(end - begin)};
      return true;
    }
    const char* begin = ++at_;
    for (;; ++at_) {
      if (at_ == last_) {
        field = {begin - 1, 1};
        return false;
      }
      if (*at_ != '"') continue;
      if (at_ + 1 == last_ || at_[1] != '"') break;
      ++at_;  // "" is a quote that belongs to the field
    }
    field = {begin, static_cast<std::size_t>(at_ - begin)};
    ++at_;
    skip_blanks();
    return true;
  }
  /// Whether another field follows; if so, moves to it.
  bool more() {
    if (separator_ == ' ') {
      skip_blanks();
      return at_ != last_;
    }
    if (at_ == last_ || *at_ != separator_) return false;
    ++at_;
    return true;
  }
  /// The current position, for messages.
  [[nodiscard]] const char* at() const noexcept { return at_; }
  [[nodiscard]] bool over() const noexcept { return at_ == last_; }

 private:
  void skip_blanks() {
    while (at_ != last_ && is_blank(*at_) && *at_ != separator_) ++at_;
    if (separator_ == ' ') {
      while (at_ != last_ && is_blank(*at_)) ++at_;
    }
  }

  const char* at_;
  const char* last_;
  char separator_;
};

/// A field with its doubled quotes unescaped.
std::string unquoted(std::string_view field);
/// All fields of a line; false for unterminated quotes, with their position.
bool all_fields(std::string_view line, char separator, std::vector<std::string>& names, const char*& problem);
std::string fields_text(std::size_t n);

}  // namespace paracel
