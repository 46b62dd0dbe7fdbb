// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/graph_loading.hpp"

#include <climits>
#include <exception>
#include <span>
#include <string>

#include <Eigen/Core>
#include <Eigen/SparseCore>

#include "load/collective_errors.hpp"
#include "load/entry_exchange.hpp"
#include "load/format/field_parser.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"
#include "load/process_grid.hpp"
#include "paracel/graph.hpp"

namespace paracel {

static_assert(std::is_same_v<sparse_matrix, Eigen::SparseMatrix<double, Eigen::RowMajor>>);
static_assert(std::is_same_v<dense_matrix, Eigen::MatrixXd>);

namespace {

template <class Id>
id_view<Id> id_of(std::string_view field) {
  if constexpr (std::is_same_v<Id, std::string>) return field;
  else return read_id(field);
}

/// Calls put(fields, place) for each non-blank line of this worker's part; place() is file:line:column.
/// Throws: data_error with the place; what `put` throws, field_problem as a data_error.
template <class Split, class Put>
void visit_fields(Comm& comm, input_set& input, const parser_type* parser, const Split& split, const Put& put) {
  std::vector<std::string_view> fields;
  list_type<str_type> parsed;
  const auto take_apart = [&](const input_piece& piece, std::string_view text) {
    fields.clear();
    if (parser == nullptr) {
      split(text, fields);
      return;
    }
    try {
      parsed = (*parser)(str_type(text));
    } catch (const std::exception& e) {
      piece.fail(text.data(), std::string("the parser threw: ") + e.what());
    }
    fields.assign(parsed.begin(), parsed.end());
  };
  const auto visit = [&](const input_piece& piece) {
    for_each_line(piece.text(), [&](std::string_view text, std::size_t) {
      if (trimmed(text).empty()) return;
      take_apart(piece, text);
      try {
        put(fields, [&] { return piece.place(parser == nullptr && !fields.empty() ? fields[0].data() : text.data()); });
      } catch (const field_problem& p) {
        piece.fail(parser == nullptr ? p.at : text.data(), p.what);
      }
    });
  };
  input.visit(comm.get_rank(), comm.get_size(), visit, report_load_progress(comm, input));
}

/// Maps 0 ... n - 1 in the order of `ids` to their places in `all`, which is sorted and contains them all.
template <class Id>
std::vector<std::uint32_t> places_in(const std::vector<Id>& all, const std::vector<Id>& ids) {
  std::vector<std::uint32_t> places;
  places.reserve(ids.size());
  for (const auto& id : ids)
    places.push_back(static_cast<std::uint32_t>(std::lower_bound(all.begin(), all.end(), id) - all.begin()));
  return places;
}

/// The ids of the rows (columns) of this worker's block, the same on all workers that share them.
template <class Id, class With>
std::vector<Id> agree_on(Comm& comm, const interner<Id>& local, std::vector<std::uint32_t>& places, const With& with) {
  auto all = union_of_ids(comm, local.ids(), with);
  const auto now = places_in(all, local.ids());
  for (auto& p : places) p = now[p];
  return all;
}

void must_fit(std::size_t n, const char* what) {
  if (n > static_cast<std::size_t>(INT_MAX))
    throw data_error("a sparse matrix of " + std::to_string(n) + " " + what +
                     ", want at most 2147483647 on one worker");
}

}  // namespace

void graph_loading::set_decomp_info(const str_type& pattern) {
  const auto grid = process_grid::of(pattern, comm_.get_size());
  npx_ = static_cast<int>(grid.npx);
  npy_ = static_cast<int>(grid.npy);
}

template <class Id>
void graph_loading::load_entries(const request& r, interner<Id>& rows, interner<Id>& columns, edge_buffer& entries) {
  const auto grid = process_grid::of(r.pattern, comm_.get_size());
  const bool mixed = r.mixed || r.pattern == "fset";
  input_set input(comm_, r.files);

  // A worker with invalid lines still takes part in the rounds of the others.
  entry_exchange<Id> exchange(comm_, grid, rows, columns);
  std::exception_ptr problem;
  std::vector<entry_view> said;
  try {
    visit_fields(comm_, input, r.parser, split_fields, [&](const std::vector<std::string_view>& fields, auto&&) {
      said.clear();
      read_entries(fields, mixed, said);
      for (const auto& e : said) exchange.put(id_of<Id>(e.row), id_of<Id>(e.column), e.weight);
    });
  } catch (const data_error&) {
    problem = std::current_exception();
  }
  entries = exchange.finish();
  all_or_throw(comm_, [&] {
    if (problem) std::rethrow_exception(problem);
  });
  set_decomp_info(r.pattern);
}

template <class Id>
edge_buffer graph_loading::load_block(const request& r, list_type<Id>& rows, list_type<Id>& columns) {
  interner<Id> own_rows;
  interner<Id> own_columns;
  edge_buffer entries;
  load_entries(r, own_rows, own_columns, entries);
  const auto grid = process_grid::of(r.pattern, comm_.get_size());
  const auto rank = comm_.get_rank();
  rows = agree_on(comm_, own_rows, entries.from, [&](std::size_t w) { return grid.same_rows(rank, w); });
  columns = agree_on(comm_, own_columns, entries.to, [&](std::size_t w) { return grid.same_columns(rank, w); });
  return entries;
}

void graph_loading::fill(sparse_matrix& to, edge_buffer&& entries, std::size_t rows, std::size_t columns) {
  adjacency a;
  all_or_throw(comm_, [&] {
    must_fit(rows, "rows");
    must_fit(columns, "columns");
    a = make_adjacency(std::move(entries), rows, duplicate_edge_rule::sum);
    must_fit(a.target.size(), "entries");
  });
  to.resize(static_cast<int>(rows), static_cast<int>(columns));
  to.resizeNonZeros(static_cast<int>(a.target.size()));
  std::copy(a.begin.begin(), a.begin.end(), to.outerIndexPtr());
  std::copy(a.target.begin(), a.target.end(), to.innerIndexPtr());
  for (std::size_t k = 0; k < a.target.size(); ++k) to.valuePtr()[k] = a.weight_at(k);
}

void graph_loading::fill(bigraph_continuous& to, edge_buffer&& entries, std::size_t rows, std::size_t) {
  to = bigraph_continuous(rows);
  for (std::size_t k = 0; k < entries.size(); ++k) to.add_edge(entries.from[k], entries.to[k], entries.weight_at(k));
}

template <class Id>
void graph_loading::load_rows(const request& r, list_type<Id>& rows, dense_matrix& to) {
  input_set input(comm_, r.files);
  std::vector<double> values;
  std::size_t width = 0;
  std::string first_place;  // of the first row here
  const auto split = [](std::string_view line, std::vector<std::string_view>& fields) {
    for (std::size_t at = 0; at < line.size();) {
      at = line.find_first_not_of(", \t;|:", at);
      if (at == line.npos) break;
      const auto end = std::min(line.find_first_of(", \t;|:", at), line.size());
      fields.push_back(line.substr(at, end - at));
      at = end;
    }
  };
  all_or_throw(comm_, [&] {
    visit_fields(comm_, input, r.parser, split, [&](const std::vector<std::string_view>& fields, auto&& place) {
      if (fields.empty()) return;
      if (fields.size() == 1) throw field_problem{fields[0].data(), "found an id alone, want numbers after it"};
      if (width == 0) {
        width = fields.size() - 1;
        first_place = place();
      }
      if (fields.size() - 1 != width)
        throw field_problem{fields[0].data(), "found " + std::to_string(fields.size() - 1) + " numbers, want " +
                                                  std::to_string(width) + " as in the lines before"};
      rows.emplace_back(id_of<Id>(trimmed(fields[0])));
      for (const auto field : std::span(fields).subspan(1)) values.push_back(read_weight(field));
    });
  });
  std::size_t wanted = 0;
  const auto widths = comm_.allgather(static_cast<std::int64_t>(width));
  const auto places = comm_.allgather(first_place);
  for (std::size_t w = 0; w < widths.size(); ++w) {
    const auto here = static_cast<std::size_t>(widths[w]);
    if (wanted == 0) wanted = here;
    if (here != 0 && here != wanted)
      throw data_error(places[w] + ": found " + std::to_string(here) + " numbers, want " + std::to_string(wanted) +
                       " as in the lines before");
  }
  to = Eigen::Map<const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
      values.data(), static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(wanted));
  set_decomp_info(r.pattern);
}

template void graph_loading::load_entries(const request&, interner<default_id_type>&, interner<default_id_type>&,
                                          edge_buffer&);
template void graph_loading::load_entries(const request&, interner<str_type>&, interner<str_type>&, edge_buffer&);
template edge_buffer graph_loading::load_block(const request&, list_type<default_id_type>&,
                                               list_type<default_id_type>&);
template edge_buffer graph_loading::load_block(const request&, list_type<str_type>&, list_type<str_type>&);
template void graph_loading::load_rows(const request&, list_type<default_id_type>&, dense_matrix&);
template void graph_loading::load_rows(const request&, list_type<str_type>&, dense_matrix&);

}  // namespace paracel
