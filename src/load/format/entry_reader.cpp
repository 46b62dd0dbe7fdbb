// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/entry_reader.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "load/collective_errors.hpp"
#include "load/format/npy_entries.hpp"
#include "load/format/npy_reader.hpp"
#include "load/input/byte_range.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

entry_layout layout_of_input(input_set& input, const entry_options& options, entry_role role) {
  std::vector<std::string> names;
  for (const auto& f : input.files()) names.push_back(f.shown());
  const auto head = [&](std::size_t file, std::size_t bytes, std::uint64_t& offset) {
    return input.head(file, bytes, &offset);
  };
  return find_entry_layout(names, head, options, role);
}

/// What rank 0 found, for the others, which cannot read standard input.
entry_layout layout_for_all(Comm& comm, const entry_layout& found) {
  std::vector<std::uint64_t> said{static_cast<std::uint64_t>(found.format), static_cast<std::uint64_t>(found.separator),
                                  found.matrices.size(), found.has_values ? 1U : 0U};
  for (const auto& m : found.matrices) {
    for (const std::uint64_t v : {m.header_bytes, m.size_line, m.rows, m.columns, m.entries, std::uint64_t{m.symmetric},
                                  std::uint64_t{m.pattern}})
      said.push_back(v);
  }
  for (const auto& f : found.files) {
    for (const auto v : {f.header, f.only_numbers, f.column[0], f.column[1], f.column[2]}) said.push_back(v);
  }
  comm.bcast(said);
  entry_layout out;
  out.format = static_cast<entry_format>(said[0]);
  out.separator = static_cast<char>(said[1]);
  out.has_values = said[3] != 0;
  std::size_t i = 4;
  for (; out.matrices.size() < said[2]; i += 7)
    out.matrices.push_back(
        {said[i], said[i + 1], said[i + 2], said[i + 3], said[i + 4], said[i + 5] != 0, said[i + 6] != 0});
  for (; i < said.size(); i += 5) out.files.push_back({said[i], said[i + 1], {said[i + 2], said[i + 3], said[i + 4]}});
  return out;
}

/// Says what was skipped, once, on rank 0. `layouts`: of the files, as rank 0 found them.
void report_skipped(const std::vector<std::string>& names, std::int64_t comments,
                    const std::vector<entry_layout>& layouts) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  if (comments > 0)
    add("skipped " + std::to_string(comments) + " comment line" + (comments == 1 ? "" : "s") +
        R"( ("comment": false reads them))");
  for (const auto& layout : layouts) {
    const auto headers = std::ranges::count_if(
        layout.files, [](const auto& f) { return f.header != entry_layout::fields_file::no_header; });
    if (headers == 0) continue;
    add("skipped the header " + layout.header_place + " " + quote_for_error(layout.header_line) +
        (headers == 1 ? "" : " and " + std::to_string(headers - 1) + " more") + R"( ("header": "no" reads it))");
  }
  if (!text.empty()) std::fprintf(stderr, "%s: %s\n", names.front().c_str(), text.c_str());
}

/// Its ids were the only ones without digits where it was decided, on the first lines.
[[noreturn]] void refuse_doubtful(const entry_layout& found) {
  throw data_error(found.header_place + ":1: found " + quote_for_error(found.header_line) +
                   ", which may be a header or an entry, as there are other names in the input; want "
                   R"("header": "yes" or "header": "no")");
}

/// What read_entries does with entries in memory.
local_entries take_own_entries(Comm& comm, const entry_options& options, entry_use use) {
  const auto& own = *options.own;
  std::optional<entry_parser> parser;
  all_or_throw(comm, [&] {
    const auto size = [](const own_entries::side& s) { return s.numeric ? s.numbers.size() : s.name.size(); };
    const auto rows = size(own.rows);
    if (rows != size(own.columns) || (!own.values.empty() && rows != own.values.size()))
      throw data_error(own.source + ": found " + std::to_string(rows) + " rows, " + std::to_string(size(own.columns)) +
                       " columns and " + std::to_string(own.values.size()) + " values, want one of each for an entry");
    if (own.values.empty() && rows > 0 && options.values == entry_options::value_rule::need)
      throw data_error(own.source + ": found no values, want one for each entry");
    if (options.cache.on || !options.rows_also.empty())
      throw config_error(own.source + ": found a cache or further rows, want neither with entries in memory");
    use.expected_bytes = rows * 12;  // of such lines as text
    parser.emplace(entry_layout{}, options, use);
    parser->take_own(own);
  });
  std::int64_t names = parser->numeric() ? 0 : 1;
  comm.allreduce(names);
  if (names > 0) parser->make_names();
  return parser->take();
}

}  // namespace

bool entries_have_values(Comm comm, const std::vector<std::string>& names, const entry_options& options) {
  input_set input(comm, names);
  if (input.standard_input()) return true;
  std::int64_t found = 0;
  all_or_throw(comm, [&] {
    if (comm.get_rank() != 0) return;
    if (is_npy(input.files().front())) found = npy_entries_have_values(input) ? 1 : 0;
    else found = layout_of_input(input, options, entry_role::edges).has_values ? 1 : 0;
  });
  comm.bcast(found);
  return found != 0;
}

local_entries read_entries(Comm comm, const std::vector<std::string>& names, const entry_options& options,
                           entry_use use) {
  if (options.own != nullptr) return take_own_entries(comm, options, use);
  const auto rank = comm.get_rank();
  const auto size = comm.get_size();
  const auto role = use.one_dictionary ? entry_role::edges : entry_role::entries;
  input_set input(comm, names);
  std::optional<input_set> also;
  if (!options.rows_also.empty()) also.emplace(comm, options.rows_also);
  std::vector<entry_layout> found(also ? 2 : 1);  // of rank 0
  std::vector<std::uint64_t> npy(2);
  all_or_throw(comm, [&] {
    if (rank != 0) return;
    const auto look = [&](std::size_t at, input_set& some, entry_role as) {
      npy[at] = is_npy(some.files().front()) ? 1 : 0;
      if (npy[at] == 0) found[at] = layout_of_input(some, options, as);
    };
    look(0, input, role);
    if (also) look(1, *also, entry_role::rows);
    if (npy[0] != 0 && options.values == entry_options::value_rule::need && !npy_entries_have_values(input))
      throw data_error(names.front() + ": found no values, want a third column with them");
  });
  comm.bcast(npy);
  const auto layout = layout_for_all(comm, found[0]);
  const auto layout_also = also ? layout_for_all(comm, found[1]) : entry_layout{};
  std::optional<entry_parser> parser;
  all_or_throw(comm, [&] {
    for (const auto& part : input.parts(rank, size)) {
      const auto& file = input.files()[part.file];
      // The text of compressed files is several times as long.
      use.expected_bytes += (part.end - part.begin) * (file.divisible() ? 1 : 4);
    }
    use.whole_matrices = true;
    parser.emplace(layout, options, use);
    if (npy[0] != 0) read_npy_entries(input, rank, size, false, options.non_negative, *parser);
    else
      input.visit(
          rank, size, [&](const input_piece& piece) { parser->parse(piece); }, report_load_progress(comm, input));
    if (npy[1] != 0) read_npy_entries(*also, rank, size, true, false, *parser);
    else if (also) also->visit(rank, size, [&](const input_piece& piece) { parser->parse_rows(piece, layout_also); });
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
  std::vector<std::int64_t> sums{parser->numeric() ? 0 : 1, parser->comments(), parser->rows_also()};
  comm.allreduce(sums);
  if (also && sums[2] == 0)
    throw data_error(options.rows_also.front() + ":1:1: found no line, want one that begins with an id");
  const bool names_occur = sums[0] > 0 && options.ids == entry_options::id_kind::automatic;
  if (names_occur && std::ranges::any_of(layout.files, [](const auto& f) { return f.only_numbers != 0; })) {
    all_or_throw(comm, [&] {
      if (rank == 0) refuse_doubtful(found[0]);
    });
  }
  if (rank == 0) report_skipped(names, sums[1], found);
  if (sums[0] > 0) parser->make_names();
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
  if (!layout.files.empty()) {
    layout.files = {layout.files[piece.file_index()]};
    layout.files[0].header = entry_layout::fields_file::no_header;
  }
  const auto found_in = [&](std::string_view lines) {
    try {
      entry_parser parser(layout, options, {.values = false});
      const input_piece alone(piece.file(), lines);
      parser.parse(alone);
      auto local = parser.take();
      const auto is = [&](const id_interner::sorted_ids& ids, std::uint32_t i, const std::string& text) {
        return ids.ids.text(ids.place.empty() ? i : ids.place[i]) == text;
      };
      bool found = false;
      local.entries.each_block([&](const chunked_vector::view& b) {
        for (std::size_t k = 0; k < b.size && !found; ++k) {
          const auto& [r, c] = wanted;
          found = (is(local.rows, b.row[k], r) && is(local.columns, b.column[k], c)) ||
                  (either_way && is(local.rows, b.row[k], c) && is(local.columns, b.column[k], r));
        }
      });
      return found;
    } catch (const data_error&) {
      return true;  // a header: the lines are examined one by one, and only this one is skipped
    }
  };
  if (!found_in(piece.text())) return;
  for_each_line(piece.text(), [&](std::string_view line, std::size_t) {
    if (places.size() >= 2 || without_entry(line, options.comments)) return;
    try {
      entry_parser check(layout, options, {.values = false});
      check.parse(input_piece(piece.file(), line));
    } catch (const data_error&) {
      return;
    }
    if (found_in(line)) places.push_back(piece.place(line.data()));
  });
}

}  // namespace

std::string place_of_second(Comm comm, const std::vector<std::string>& names, const entry_options& options,
                            const entry_ids& wanted, entry_role role, bool either_way) {
  if (options.own != nullptr) return options.own->source;
  input_set input(comm, names);
  std::string all;
  for (const auto& n : names) all += (all.empty() ? "" : ", ") + n;
  if (input.standard_input() || is_npy(input.files().front())) return all;
  const auto layout = layout_of_input(input, options, role);
  std::vector<std::string> mine;
  input.visit(comm.get_rank(), comm.get_size(), [&](const input_piece& piece) {
    if (mine.size() < 2) find_entry(piece, layout, options, wanted, either_way, mine);
  });
  std::vector<std::string> places;
  for (const auto& some : comm.allgather(mine)) places.insert(places.end(), some.begin(), some.end());
  return places.size() < 2 ? all : places[1];
}

}  // namespace paracel
