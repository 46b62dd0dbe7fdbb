// SPDX-License-Identifier: BSD-3-Clause
//
// The fields of text formats, for programs with a format of their own: what a number or a comment is in one input, it
// is in all (doc/loading.md, "All text formats").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paracel {

/// The whole of `text` as a finite number, decimal or scientific with an optional sign; numbers too small for a double
/// are 0. False, with `to` as it was, for anything else. A float is rounded once, from the text.
bool parse_number(std::string_view text, double& to) noexcept;
bool parse_number(std::string_view text, float& to) noexcept;

/// The whole of `text` as an id: digits, to 2^64 - 1. False, with `to` as it was, for anything else.
bool parse_id(std::string_view text, std::uint64_t& to) noexcept;

/// Whether a line, blanks before it aside, begins with #, % or //.
bool is_comment(std::string_view line) noexcept;

/// `text` in double quotes for a message, without unprintable bytes, at most 40 characters.
std::string quoted_text(std::string_view text);

}  // namespace paracel
