// SPDX-License-Identifier: BSD-3-Clause
#include "kmeans_input.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <paracel/text_input.hpp>

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
    const char* const stop = std::find(begin, end, ',');
    if (!parse_number({begin, static_cast<std::size_t>(stop - begin)}, v)) {
      return std::to_string(at - line.data() + 1) + ": found \"" + std::string(at, stop) + "\", want a number";
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
  // All workers must know the number of coordinates before they read their parts.
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

std::vector<double> on_sphere(std::span<const double> degrees) {
  std::vector<double> points;
  points.reserve(degrees.size() / 2 * 3);
  for (std::size_t i = 0; i + 1 < degrees.size(); i += 2) {
    const double latitude = degrees[i] * std::numbers::pi / 180;
    const double longitude = degrees[i + 1] * std::numbers::pi / 180;
    points.push_back(std::cos(latitude) * std::cos(longitude));
    points.push_back(std::cos(latitude) * std::sin(longitude));
    points.push_back(std::sin(latitude));
  }
  return points;
}

std::vector<double> on_globe(std::span<const double> points) {
  std::vector<double> degrees;
  degrees.reserve(points.size() / 3 * 2);
  for (std::size_t i = 0; i + 2 < points.size(); i += 3) {
    degrees.push_back(std::atan2(points[i + 2], std::hypot(points[i], points[i + 1])) * 180 / std::numbers::pi);
    degrees.push_back(std::atan2(points[i + 1], points[i]) * 180 / std::numbers::pi);
  }
  return degrees;
}

void to_sphere(sample_rows& rows, const std::vector<std::string>& files, const sample_options& how) {
  if (rows.dense ? rows.columns != 2 : rows.columns > 2)
    throw data_error(files.front() + ": found points of " + std::to_string(rows.columns) +
                     " features, want latitude and longitude for metric haversine");
  std::vector<double> degrees(2 * rows.rows());
  if (rows.dense) {
    degrees = rows.value;
  } else {
    for (std::size_t i = 0; i < rows.rows(); ++i)
      for (std::size_t k = rows.row_begin[i]; k < rows.row_begin[i + 1]; ++k)
        degrees[2 * i + rows.column[k]] = rows.value[k];
  }
  for (std::size_t i = 0; i < degrees.size(); i += 2)
    if (std::abs(degrees[i]) > 90)
      throw data_error(place_of_row(files, rows.first_row + i / 2, how) + ": found latitude " +
                       std::to_string(degrees[i]) + ", want -90 to 90 degrees");
  sample_rows points;
  points.dense = true;
  points.columns = 3;
  points.row_count = rows.row_count;
  points.rows_total = rows.rows_total;
  points.first_row = rows.first_row;
  points.label = std::move(rows.label);
  points.weight = std::move(rows.weight);
  points.value = on_sphere(degrees);
  rows = std::move(points);
}

}  // namespace paracel::alg
