// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's distribution of lines over a grid of workers. A program that only loads is better off with
// paracel_load_as_graph and paracel_load_as_matrix, which send an entry in 24 bytes and check what they read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>
#include <paracel/graph_loading.hpp>

#include "../paracel_types.hpp"
#include "../utils.hpp"
#include "partition.hpp"

namespace paracel {

using listriple_type = list_type<triple_type>;
using listlistriple_type = list_type<list_type<triple_type>>;

/// The whole line as one field.
inline const auto default_parser = [](const str_type& line) { return list_type<str_type>{line}; };

inline namespace compat {

/// Worker x * npy + y owns the entries whose row has x = hash(row) modulo npx and whose column y = hash(column) modulo
/// npy, by hash_type. Thread-safety: none
class scheduler {
 public:
  explicit scheduler(Comm comm, str_type pattern = "fmap", bool mix_flag = false)
      : comm_(std::move(comm)), pattern_(std::move(pattern)), mixed_(mix_flag) {
    dim_init();
  }

  /// Sets the grid from the pattern; the constructor does it. Throws: usage_error.
  void dim_init() {
    struct pattern_grid : graph_loading {
      using graph_loading::graph_loading;
    } grid(comm_);
    grid.set_decomp_info(pattern_);
    grid.get_decomp_info(npx_, npy_);
  }

  /// This worker's lines.
  [[nodiscard]] list_type<str_type> schedule_load(const partition& parts) const { return structure_load(parts); }
  [[nodiscard]] list_type<str_type> structure_load(const partition& parts) const {
    list_type<str_type> lines;
    structure_load_handle(parts, [&](str_type& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  template <class F>
  void schedule_load_handle(const partition& parts, F&& func) const {
    structure_load_handle(parts, func);
  }
  template <class F>
  void structure_load_handle(const partition& parts, F&& func) const {
    const auto begins = parts.get_start_list();
    const auto ends = parts.get_end_list();
    const auto each = begins.size() / comm_.get_size();
    const auto first = comm_.get_rank() * each;
    for (auto i = first; i < first + each; ++i) parts.files_load_lines_impl(begins[i], ends[i], func);
  }

  template <class A, class B>
  [[nodiscard]] std::size_t h(const A& row, const B& column, int npx, int npy) const {
    return hash_type<A>()(row) % static_cast<std::size_t>(npx) * static_cast<std::size_t>(npy) +
           hash_type<B>()(column) % static_cast<std::size_t>(npy);
  }
  template <class A, class B>
  [[nodiscard]] std::size_t select(const A& row, const B& column) const {
    return h(row, column, npx_, npy_);
  }
  template <class A>
  [[nodiscard]] std::size_t select(const A& row) const {
    return hash_type<A>()(row) % static_cast<std::size_t>(npx_);
  }

  /// The entries of the lines, by the worker that owns them. Fields are a, b; a, b:w; a, b, w; with mix_flag
  /// a, b:w, c, ... Throws: data_error with the line.
  template <class F>
  void lines_organize(const list_type<str_type>& lines, F&& parser,
                      list_type<list_type<compact_triple_type>>& entries) const {
    organize<default_id_type>(lines, parser, entries, [](const str_type& id) { return cvt(id); });
  }
  template <class F = decltype(default_parser)>
  [[nodiscard]] listlistriple_type lines_organize(const list_type<str_type>& lines, F&& parser = default_parser) const {
    listlistriple_type entries;
    organize<str_type>(lines, parser, entries, [](const str_type& id) { return id; });
    return entries;
  }

  /// Exchanges entries: `mine` is what all workers have for this one, in rank order. A collective.
  void exchange(list_type<list_type<compact_triple_type>>& entries, list_type<compact_triple_type>& mine) {
    swap_parts(entries, mine);
  }
  listriple_type exchange(listlistriple_type& entries) {
    listriple_type mine;
    swap_parts(entries, mine);
    return mine;
  }

  /// Numbers the rows that the workers of this grid row have, and the columns, in the order of their ids: `numbered`
  /// has the entries with these numbers, `rows` and `columns` the ids by number. A collective.
  void index_mapping(const listriple_type& entries, list_type<compact_triple_type>& numbered,
                     dict_type<default_id_type, str_type>& rows, dict_type<default_id_type, str_type>& columns) {
    number(entries, numbered, rows, columns);
  }
  void index_mapping(const list_type<compact_triple_type>& entries, list_type<compact_triple_type>& numbered,
                     dict_type<default_id_type, default_id_type>& rows,
                     dict_type<default_id_type, default_id_type>& columns) {
    number(entries, numbered, rows, columns);
  }

 private:
  template <class Id, class Entry, class F, class Read>
  void organize(const list_type<str_type>& lines, F& parser, list_type<list_type<Entry>>& entries, Read read) const {
    entries.resize(comm_.get_size());
    const auto add = [&](const str_type& row, const str_type& column, double weight) {
      const Id a = read(row);
      const Id b = read(column);
      entries[select(a, b)].emplace_back(a, b, weight);
    };
    for (const auto& line : lines) {
      const auto fields = parser(line);
      const auto counterpart = [&](const str_type& field) {
        const auto parts = str_split(field, ":| ");
        if (parts.empty() || parts.size() > 2) throw data_error("found \"" + line + "\", want id or id:weight");
        add(fields[0], parts[0], parts.size() == 1 ? 1.0 : std::stod(parts[1]));
      };
      if (fields.size() == 2) counterpart(fields[1]);
      else if (mixed_)
        for (std::size_t i = 1; i < fields.size(); ++i) counterpart(fields[i]);
      else if (fields.size() == 3) add(fields[0], fields[1], std::stod(fields[2]));
      else throw data_error("found \"" + line + "\", want two or three fields");
    }
  }
  template <class Entry>
  void swap_parts(list_type<list_type<Entry>>& entries, list_type<Entry>& mine) {
    list_type<list_type<Entry>> received;
    comm_.alltoall(entries, received);
    for (auto& part : received) std::move(part.begin(), part.end(), std::back_inserter(mine));
  }
  template <class Entry, class Id>
  void number(const list_type<Entry>& entries, list_type<compact_triple_type>& numbered,
              dict_type<default_id_type, Id>& rows, dict_type<default_id_type, Id>& columns) {
    const int rank = static_cast<int>(comm_.get_rank());
    list_type<Id> own_rows, own_columns;
    for (const auto& e : entries) {
      own_rows.push_back(std::get<0>(e));
      own_columns.push_back(std::get<1>(e));
    }
    const auto of_row = numbers_of(comm_.split(rank / npy_), own_rows, rows);
    const auto of_column = numbers_of(comm_.split(rank % npy_), own_columns, columns);
    for (const auto& e : entries)
      numbered.emplace_back(of_row.at(std::get<0>(e)), of_column.at(std::get<1>(e)), std::get<2>(e));
  }
  template <class Id>
  static dict_type<Id, default_id_type> numbers_of(Comm among, const list_type<Id>& own,
                                                   dict_type<default_id_type, Id>& ids) {
    std::set<Id> all;
    among.bcastring(own, [&](const list_type<Id>& some) { all.insert(some.begin(), some.end()); });
    dict_type<Id, default_id_type> numbers;
    for (const auto& id : all) {
      const auto n = numbers.size();
      ids[n] = id;
      numbers[id] = n;
    }
    return numbers;
  }

  Comm comm_;
  str_type pattern_;
  bool mixed_;
  int npx_ = 1;
  int npy_ = 1;
};

}  // namespace compat
}  // namespace paracel
