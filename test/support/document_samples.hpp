// SPDX-License-Identifier: BSD-3-Clause
//
// Samples of output in the documents, as test/process/document_samples.py has them: the test that produces such output
// compares it.
#pragma once

#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "test/support/paths.hpp"

namespace paracel::test {

/// Without what differs from run to run: folders and numbers.
inline std::string without_numbers(const std::string& text) {
  static const std::regex folders(R"([^\s'"]*/(?=[^\s/]))");
  static const std::regex numbers(R"(\d+(\.\d+)?)");
  return std::regex_replace(std::regex_replace(text, folders, ""), numbers, "#");
}

/// The lines of a page's samples that the test of this name compares, without numbers.
inline std::vector<std::string> document_samples(const std::string& page, const std::string& name) {
  std::ifstream file(source_folder() + "/" + page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string mark = "<!-- output of " + name + " -->\n";
  std::vector<std::string> lines;
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    auto line = at + mark.size();
    while (text.compare(line, 4, "    ") == 0) {
      const auto end = text.find('\n', line);
      lines.push_back(without_numbers(text.substr(line + 4, end - line - 4)));
      line = end + 1;
    }
  }
  return lines;
}

}  // namespace paracel::test
