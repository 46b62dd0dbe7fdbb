// SPDX-License-Identifier: BSD-3-Clause
//
// Which bytes of which files a rank reads.
//
//     files      |aaaaaaaaaaaa|bbbb|ccccccccccccccc|      concatenated, `total` bytes
//     ranks      0         1         2        3           cut at total * r / size
//
// A line belongs to the rank whose part contains its first byte, and is read to its end even past the cut. So no line
// is split, lost or read twice, however long it is and however many ranks there are; a rank may have nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paracel {

/// A piece of a file: the lines whose first byte is in [begin, end).
struct file_piece {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The pieces of files of these sizes that `rank` of `size` reads, in file order, none of them empty.
std::vector<file_piece> byte_range(const std::vector<std::uint64_t>& file_bytes, std::size_t rank, std::size_t size);

/// The first byte at or after `from` at which a line begins; text.size() if there is none.
std::size_t line_begin(std::string_view text, std::size_t from) noexcept;

/// Calls f(line, offset in lines) for each line of `lines`, without \n and a \r before it.
template <class F>
void for_each_line(std::string_view lines, F&& f) {
  std::size_t at = 0;
  while (at < lines.size()) {
    auto end = lines.find('\n', at);
    const auto next = end == std::string_view::npos ? lines.size() : end + 1;
    if (end == std::string_view::npos) end = lines.size();
    auto line = lines.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    f(line, at);
    at = next;
  }
}

}  // namespace paracel
