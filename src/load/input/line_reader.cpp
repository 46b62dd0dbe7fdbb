// SPDX-License-Identifier: BSD-3-Clause
//
// Lines and runs of lines for parsers.
#include <paracel/samples.hpp>

#include "load/collective_errors.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"

namespace paracel {

namespace {

constexpr std::size_t text_piece_bytes = std::size_t{1} << 20;

/// Visits part `part` of `parts` of the files that rank 0 finds.
void visit_part(Comm& comm, const std::vector<std::string>& names, std::size_t part, std::size_t parts,
                const std::function<void(std::string_view, const text_failure&)>& visit) {
  input_set input(comm, names);
  all_or_throw(comm, [&] {
    const auto each = [&](const input_piece& piece) {
      visit(piece.text(), [&](const char* at, const std::string& what) { piece.fail(at, what); });
    };
    input.visit(part, parts, each, report_load_progress(comm, input), text_piece_bytes);
  });
}

}  // namespace

void visit_text(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                const std::function<void(std::string_view)>& visit) {
  input_set(names).visit(
      rank, size, [&](const input_piece& piece) { visit(piece.text()); }, {}, text_piece_bytes);
}

void visit_text(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                const std::function<void(std::string_view, const text_failure&)>& visit) {
  const auto each = [&](const input_piece& piece) {
    visit(piece.text(), [&](const char* at, const std::string& what) { piece.fail(at, what); });
  };
  input_set(names).visit(rank, size, each, {}, text_piece_bytes);
}

void visit_text(Comm comm, const std::vector<std::string>& names,
                const std::function<void(std::string_view, const text_failure&)>& visit) {
  visit_part(comm, names, comm.get_rank(), comm.get_size(), visit);
}

void visit_whole_text(Comm comm, const std::vector<std::string>& names,
                      const std::function<void(std::string_view, const text_failure&)>& visit) {
  visit_part(comm, names, 0, 1, visit);
}

void visit_lines(Comm comm, const std::vector<std::string>& names, const std::function<void(std::string&&)>& visit) {
  visit_text(comm, names, [&](std::string_view text, const text_failure&) {
    for_each_line(text, [&](std::string_view line, std::size_t) { visit(std::string(line)); });
  });
}

void visit_lines(const std::vector<std::string>& names, std::size_t rank, std::size_t size,
                 const std::function<void(std::string&&)>& visit) {
  visit_text(names, rank, size, [&](std::string_view text) {
    for_each_line(text, [&](std::string_view line, std::size_t) { visit(std::string(line)); });
  });
}

void visit_lines(const std::string& name, std::size_t rank, std::size_t size,
                 const std::function<void(std::string&&)>& visit) {
  visit_lines(std::vector<std::string>{name}, rank, size, visit);
}

std::vector<std::string> read_lines(const std::vector<std::string>& names, std::size_t rank, std::size_t size) {
  std::vector<std::string> lines;
  visit_lines(names, rank, size, [&](std::string&& line) { lines.push_back(std::move(line)); });
  return lines;
}

std::vector<std::string> read_lines(const std::string& name, std::size_t rank, std::size_t size) {
  return read_lines(std::vector<std::string>{name}, rank, size);
}

}  // namespace paracel
