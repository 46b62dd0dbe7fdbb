// SPDX-License-Identifier: BSD-3-Clause
#include "kmeans_input.hpp"

#include <charconv>
#include <cmath>

namespace paracel::alg {

namespace {

struct enough {};

/// Calls f(line) for each line of a block of lines, without line ends.
template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    f(line);
  }
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

}  // namespace

bool is_fvec(Comm comm, const std::vector<std::string>& files) {
  std::int64_t answer = 0;
  if (comm.get_rank() == 0) {
    try {
      visit_text(files, 0, 1, [&](std::string_view text) {
        each_line(text, [&](std::string_view line) {
          if (blank(line)) return;
          const auto tab = line.find('\t');
          // Numbers separated by tabs only are a table.
          answer = tab != std::string_view::npos && line.find('\t', tab + 1) == std::string_view::npos &&
                   line.find(',', tab) != std::string_view::npos;
          throw enough();
        });
      });
    } catch (const enough&) {
    } catch (const data_error&) {
      answer = 0;  // the loader reports it
    }
  }
  comm.bcast(answer);
  return answer != 0;
}

std::string parse_fvec_line(std::string_view line, sample_rows& rows, id_list& names) {
  if (blank(line)) return "";
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos) return "1: found no tab, want name<tab>x,x,...";
  if (tab == 0) return "1: found no name, want name<tab>x,x,...";
  const char* at = line.data() + tab + 1;
  const char* const end = line.data() + line.size();
  std::uint32_t count = 0;
  while (true) {
    double v = 0;
    const char* begin = at;
    while (begin < end && *begin == ' ') ++begin;
    if (begin < end && *begin == '+') ++begin;
    const auto [stop, failed] = std::from_chars(begin, end, v);
    if (failed != std::errc{} || !std::isfinite(v) || (stop != end && *stop != ',')) {
      const std::string_view field(at, static_cast<std::size_t>(end - at));
      return std::to_string(at - line.data() + 1) + ": found \"" + std::string(field.substr(0, field.find(','))) +
             "\", want a number";
    }
    rows.value.push_back(v);
    ++count;
    if (stop == end) break;
    at = stop + 1;
  }
  if (rows.columns == 0) rows.columns = count;
  if (count != rows.columns)
    return "1: found " + std::to_string(count) + " coordinates, want " + std::to_string(rows.columns);
  names.push_back(line.substr(0, tab));
  ++rows.row_count;
  return "";
}

sample_rows load_fvec(Comm comm, const std::vector<std::string>& files, std::uint32_t columns, id_list& names) {
  // All workers know the number of coordinates before they read their parts.
  std::int64_t width = columns;
  if (comm.get_rank() == 0 && width == 0) {
    try {
      visit_text(files, 0, 1, [&](std::string_view text) {
        each_line(text, [&](std::string_view line) {
          if (blank(line)) return;
          sample_rows row;
          auto name = id_list::empty(false);
          (void)parse_fvec_line(line, row, name);
          width = row.columns;
          throw enough();
        });
      });
    } catch (const enough&) {
    } catch (const data_error&) {
      width = 0;  // the worker that reads that part reports it
    }
  }
  comm.bcast(width);

  sample_rows rows;
  rows.dense = true;
  rows.columns = static_cast<std::uint32_t>(width);
  names = id_list::empty(false);
  visit_text(comm, files, [&](std::string_view text, const text_failure& fail) {
    each_line(text, [&](std::string_view line) {
      const auto wrong = parse_fvec_line(line, rows, names);
      if (!wrong.empty()) fail(line.data() + std::stoul(wrong) - 1, wrong.substr(wrong.find(' ') + 1));
    });
  });
  const auto counts = comm.allgather(static_cast<std::int64_t>(rows.row_count));
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (r < comm.get_rank()) rows.first_row += static_cast<std::uint64_t>(counts[r]);
    rows.rows_total += static_cast<std::uint64_t>(counts[r]);
  }
  if (rows.rows_total == 0) throw data_error(files.front() + ":1:1: found no line, want name<tab>x,x,...");
  return rows;
}

}  // namespace paracel::alg
