// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/npy_entries.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/format/npy_reader.hpp"
#include "paracel/detail/bytes.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

constexpr double greatest_id = 9007199254740992;  // 2^53: beyond it adjacent numbers become the same double
constexpr std::size_t rows_at_once = 4096;

npy_matrix entries_header(const input_file& file, bool rows_only) {
  if (!file.divisible())
    throw data_error(file.shown() + ": found no .npy header, want one: the first file is an .npy file");
  auto header = read_npy_matrix(file.name, npy_front(file), file.bytes);
  const bool right = rows_only ? header.columns == 1 : header.columns == 2 || header.columns == 3;
  if (!right)
    throw data_error(file.name + ": found " + std::to_string(header.columns) + " columns, want " +
                     (rows_only ? "one, of ids" : "row, column and, optional, value"));
  return header;
}

double entry_number(const npy_matrix& header, const std::byte* at) {
  if (header.kind == 'i')
    return static_cast<double>(header.width == 4 ? load_field<std::int32_t>(at) : load_field<std::int64_t>(at));
  return header.width == 4 ? static_cast<double>(load_field<float>(at)) : load_field<double>(at);
}

}  // namespace

bool npy_entries_have_values(const input_set& input) {
  return entries_header(input.files().front(), false).columns == 3;
}

void read_npy_entries(const input_set& input, std::size_t rank, std::size_t size, bool rows_only, bool non_negative,
                      entry_parser& to) {
  const auto columns = entries_header(input.files().front(), rows_only).columns;
  for (const auto& part : input.parts(rank, size)) {
    const auto& file = input.files()[part.file];
    const auto header = entries_header(file, rows_only);
    if (header.columns != columns)
      throw data_error(file.name + ": found " + std::to_string(header.columns) + " columns, want " +
                       std::to_string(columns) + " as in the first file");
    const auto row_bytes = static_cast<std::size_t>(columns * header.width);
    // A row belongs to the rank whose part of the file contains its first byte.
    const auto row_at = [&](std::uint64_t offset) {
      const auto into = offset <= header.data_begin ? 0 : offset - header.data_begin;
      return std::min<std::uint64_t>(header.rows, (into + row_bytes - 1) / row_bytes);
    };
    auto row = row_at(part.begin);
    const auto last = row_at(part.end);
    const auto from = open_source(file, header.data_begin + row * row_bytes);
    std::vector<std::byte> block(rows_at_once * row_bytes);
    while (row < last) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(rows_at_once, last - row)) * row_bytes;
      for (std::size_t have = 0; have < want;)
        have += from->read(reinterpret_cast<char*>(block.data()) + have, want - have);
      for (std::size_t at = 0; at < want; at += row_bytes, ++row) {
        double v[3] = {0, 0, 1};
        for (std::size_t c = 0; c < columns; ++c) {
          v[c] = entry_number(header, block.data() + at + c * header.width);
          const bool right = c < 2 ? v[c] >= 0 && v[c] <= greatest_id && v[c] == std::floor(v[c])
                                   : std::isfinite(v[c]) && !(non_negative && v[c] < 0);
          if (!right)
            throw data_error(file.name + ":" + std::to_string(row + 1) + ":" + std::to_string(c + 1) + ": found " +
                             number_text(v[c]) + ", want " +
                             (c < 2          ? "an id: a whole number from 0 to 2^53"
                              : non_negative ? "a number of at least 0"
                                             : "a finite number"));
        }
        const auto id = [&](std::size_t c) { return static_cast<std::uint64_t>(v[c]); };
        if (rows_only) to.take_row(id(0));
        else to.take_entry(id(0), id(1), v[2]);
      }
    }
    from->verify();
  }
}

}  // namespace paracel
