// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/byte_range.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/check.hpp"
#include "paracel/error.hpp"
#include "paracel/samples.hpp"
#include "storage/file_glob.hpp"

namespace paracel {

std::vector<file_piece> byte_range(const std::vector<std::uint64_t>& file_bytes, std::size_t rank, std::size_t size) {
  std::uint64_t total = 0;
  for (const auto b : file_bytes) total += b;
  // total * r / size without the product, which could overflow.
  const auto cut = [&](std::uint64_t r) { return total / size * r + total % size * r / size; };
  const auto first = cut(rank);
  const auto last = cut(rank + 1);
  PARACEL_CHECK(first <= last);
  std::vector<file_piece> pieces;
  std::uint64_t offset = 0;
  for (std::size_t f = 0; f < file_bytes.size(); ++f) {
    const auto begin = std::max(first, offset);
    const auto end = std::min(last, offset + file_bytes[f]);
    if (begin < end) pieces.push_back({f, begin - offset, end - offset});
    offset += file_bytes[f];
  }
  return pieces;
}

std::size_t line_begin(std::string_view text, std::size_t from) noexcept {
  if (from == 0 || from >= text.size()) return std::min(from, text.size());
  const auto newline = text.find('\n', from - 1);
  return newline == std::string_view::npos ? text.size() : newline + 1;
}

std::vector<std::string> expand(const std::string& name) {
  if (name == "-") return {name};
  auto files = storage::expand_files(name);
  if (files.empty()) {
    throw data_error(storage::file_exists(name) ? name + ": no file in this folder"
                                                : name + ": no such file or folder");
  }
  return files;
}

std::vector<std::string> expand(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const auto& name : names) {
    auto some = expand(name);
    files.insert(files.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return files;
}

}  // namespace paracel
