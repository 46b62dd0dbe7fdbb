// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/entry_reader.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "load/collective_errors.hpp"
#include "load/input/byte_range.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

/// Enough of a file to find its first entry.
constexpr std::size_t head_bytes = std::size_t{64} << 10;

std::string first_line(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  std::string_view found;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    if (found.empty() && !without_entry(line)) found = line;
  });
  return std::string(found);
}

/// The first line of the input that is an entry, or a banner.
std::string first_line(input_set& input) {
  for (std::size_t f = 0; f < input.files().size(); ++f) {
    for (std::size_t bytes = head_bytes;; bytes *= 2) {
      const auto text = input.head(f, bytes);
      auto line = first_line(text);
      if (!line.empty()) return line;
      if (text.size() < bytes) break;
    }
  }
  return {};
}

entry_layout entry_layout_of(input_set& input, entry_format wanted) {
  const auto line = first_line(input);
  entry_layout out;
  if (line.empty()) return out;
  out = layout_of(line, wanted);
  if (out.format != entry_format::matrix_market) return out;
  for (std::size_t f = 0; f < input.files().size(); ++f) {
    out.matrices.emplace_back();
    for (std::size_t bytes = head_bytes;; bytes *= 2) {
      const auto head = input.head(f, bytes);
      const auto name = input.files()[f].shown();
      const input_piece piece(name, head);
      if (read_matrix_header(piece, out.matrices.back())) break;
      if (head.size() < bytes)
        piece.fail(piece.text().data() + piece.text().size(),
                   "found the end of the file, want rows, columns and entries");
    }
  }
  return out;
}

/// What rank 0 found, for the others, which cannot read standard input.
entry_layout layout_for_all(Comm& comm, const entry_layout& found) {
  std::vector<std::uint64_t> said{static_cast<std::uint64_t>(found.format),
                                  static_cast<std::uint64_t>(found.separator)};
  for (const auto& m : found.matrices) {
    for (const std::uint64_t v : {m.header_bytes, m.size_line, m.rows, m.columns, m.entries, std::uint64_t{m.symmetric},
                                  std::uint64_t{m.pattern}})
      said.push_back(v);
  }
  comm.bcast(said);
  entry_layout out;
  out.format = static_cast<entry_format>(said[0]);
  out.separator = static_cast<char>(said[1]);
  for (std::size_t i = 2; i + 7 <= said.size(); i += 7)
    out.matrices.push_back(
        {said[i], said[i + 1], said[i + 2], said[i + 3], said[i + 4], said[i + 5] != 0, said[i + 6] != 0});
  return out;
}

}  // namespace

local_entries read_entries(Comm comm, const std::vector<std::string>& names, const entry_options& options,
                           entry_use use) {
  const auto rank = comm.get_rank();
  const auto size = comm.get_size();
  input_set input(comm, names);
  std::optional<input_set> also;
  if (!options.rows_also.empty()) also.emplace(comm, options.rows_also);
  entry_layout layout;
  all_or_throw(comm, [&] {
    if (rank == 0) layout = entry_layout_of(input, options.format);
  });
  layout = layout_for_all(comm, layout);
  std::optional<entry_parser> parser;
  all_or_throw(comm, [&] {
    for (const auto& part : input.parts(rank, size)) {
      const auto& file = input.files()[part.file];
      // The text of compressed files is several times as long.
      use.expected_bytes += (part.end - part.begin) * (file.divisible() ? 1 : 4);
    }
    use.whole_matrices = true;
    parser.emplace(layout, options, use);
    const auto parts = input.parts(rank, size);
    if (options.header == entry_options::header_rule::yes && !parts.empty() && parts.front().begin > 0 &&
        input.blank_before(parts.front().file, parts.front().begin))
      parser->expect_header();
    input.visit(
        rank, size, [&](const input_piece& piece) { parser->parse(piece); }, report_load_progress(comm, input));
    if (!also || (also->standard_input() && rank != 0)) return;
    const auto line = first_line(*also);
    const char separator = line.empty() ? ' ' : layout_of(line, entry_format::fields).separator;
    also->visit(rank, size, [&](const input_piece& piece) { parser->parse_rows(piece, separator); });
  });
  auto counts = parser->entries_of_file();
  if (!counts.empty()) comm.allreduce(counts);
  for (std::size_t f = 0; f < layout.matrices.size(); ++f) {
    const auto& m = layout.matrices[f];
    if (m.entries != static_cast<std::uint64_t>(counts[f]))
      throw data_error(input.files()[f].shown() + ":" + std::to_string(m.size_line) + ":1: found " +
                       std::to_string(counts[f]) + " entries, want " + std::to_string(m.entries) +
                       " as this line says");
    // Rows and columns without an entry exist too: each worker contributes its share of them.
    const auto range = [&](std::uint64_t n, bool rows) {
      parser->take_range(1 + n / size * rank + std::min<std::uint64_t>(n % size, rank),
                         1 + n / size * (rank + 1) + std::min<std::uint64_t>(n % size, rank + 1), rows);
    };
    range(options.transpose ? m.columns : m.rows, true);
    range(options.transpose ? m.rows : m.columns, false);
  }
  std::int64_t numeric = parser->numeric() ? 1 : 0;
  comm.allreduce(numeric, reduce_op::min);
  if (numeric == 0) parser->make_names();
  return parser->take();
}

namespace {

/// Appends the places of the lines that contain the entry, until there are two.
void find_entry(const input_piece& piece, entry_layout layout, const entry_options& options, const entry_ids& wanted,
                bool either_way, std::vector<std::string>& places) {
  if (!layout.matrices.empty()) {
    layout.matrices = {layout.matrices[piece.file_index()]};
    layout.matrices[0].header_bytes = 0;
  }
  entry_options plain = options;
  plain.header = entry_options::header_rule::no;
  const auto found_in = [&](std::string_view lines) {
    try {
      entry_parser parser(layout, plain, {.values = false});
      const input_piece alone(piece.file(), lines);
      parser.parse(alone);
      auto local = parser.take();
      const auto is = [&](const id_interner::sorted_ids& ids, std::uint32_t i, const std::string& text) {
        return ids.ids.text(ids.place.empty() ? i : ids.place[i]) == text;
      };
      for (const auto& b : local.entries.blocks()) {
        for (std::size_t k = 0; k < b.size; ++k) {
          const auto& [r, c] = wanted;
          if (is(local.rows, b.row[k], r) && is(local.columns, b.column[k], c)) return true;
          if (either_way && is(local.rows, b.row[k], c) && is(local.columns, b.column[k], r)) return true;
        }
      }
    } catch (const data_error&) {
      return true;  // a header: the lines are examined one by one, and only this one is skipped
    }
    return false;
  };
  if (!found_in(piece.text())) return;
  for_each_line(piece.text(), [&](std::string_view line, std::size_t) {
    if (places.size() >= 2 || without_entry(line)) return;
    try {
      entry_parser check(layout, plain, {.values = false});
      check.parse(input_piece(piece.file(), line));
    } catch (const data_error&) {
      return;
    }
    if (found_in(line)) places.push_back(piece.place(line.data()));
  });
}

}  // namespace

std::string place_of_second(Comm comm, const std::vector<std::string>& names, const entry_options& options,
                            const entry_ids& wanted, bool either_way) {
  input_set input(comm, names);
  std::string all;
  for (const auto& n : names) all += (all.empty() ? "" : ", ") + n;
  if (input.standard_input()) return all;
  const auto layout = entry_layout_of(input, options.format);
  std::vector<std::string> mine;
  input.visit(comm.get_rank(), comm.get_size(), [&](const input_piece& piece) {
    if (mine.size() < 2) find_entry(piece, layout, options, wanted, either_way, mine);
  });
  std::vector<std::string> places;
  for (const auto& some : comm.allgather(mine)) places.insert(places.end(), some.begin(), some.end());
  return places.size() < 2 ? all : places[1];
}

}  // namespace paracel
