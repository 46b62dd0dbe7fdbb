// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace paracel {

/// The parts of `text` between matches of a regular expression (ECMAScript); empty parts are kept, except the last. In
/// the library because including <regex> makes a file take a second longer to compile.
/// Throws: usage_error when `pattern` is not a regular expression.
std::vector<std::string> split_text(const std::string& text, const std::string& pattern);

}  // namespace paracel
