// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/detail/split_text.hpp>

#include <regex>

#include <paracel/error.hpp>

namespace paracel {

std::vector<std::string> split_text(const std::string& text, const std::string& pattern) {
  try {
    const std::regex separator(pattern);
    return {std::sregex_token_iterator(text.begin(), text.end(), separator, -1), std::sregex_token_iterator()};
  } catch (const std::regex_error& e) {
    throw usage_error("\"" + pattern + "\" is not a regular expression: " + e.what());
  }
}

}  // namespace paracel
