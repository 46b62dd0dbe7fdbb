// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's loader. paracel_load_as_graph and paracel_load_as_matrix do the same with fewer messages.
#pragma once

#include <type_traits>
#include <utility>

#include <paracel/comm.hpp>

#include "../graph.hpp"
#include "../paracel_types.hpp"
#include "../utils.hpp"
#include "partition.hpp"
#include "scheduler.hpp"

namespace paracel {

#ifdef EIGEN_WORLD_VERSION
using eigen_triple = Eigen::Triplet<double>;
#endif

inline namespace compat {

/// T: a file name or pattern, or a list of them. All calls are collectives; the create_* ones empty `lines`.
/// Throws: data_error. Thread-safety: none
template <class T = str_type>
class loader {
 public:
  loader(T files, Comm comm, str_type pattern = "fmap")
      : loader(std::move(files), std::move(comm), default_parser, std::move(pattern)) {}
  loader(T files, Comm comm, parser_type parser, str_type pattern, bool mix_flag = false)
      : files_(std::move(files)),
        comm_(std::move(comm)),
        parser_(std::move(parser)),
        pattern_(std::move(pattern)),
        mixed_(mix_flag) {}

  /// This worker's lines.
  [[nodiscard]] list_type<str_type> load() { return fixload(); }
  [[nodiscard]] list_type<str_type> fixload() {
    list_type<str_type> lines;
    fixload_handle([&](str_type& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  template <class F>
  void fixload_handle(F&& func) {
    partition parts(expand(files_), static_cast<int>(comm_.get_size()), pattern_);
    parts.files_partition();
    scheduler(comm_, pattern_, mixed_).structure_load_handle(parts, func);
  }

  void create_graph(list_type<str_type>& lines, digraph<default_id_type>& graph) { add_numbers(lines, graph); }
  void create_graph(list_type<str_type>& lines, bigraph<default_id_type>& graph) { add_numbers(lines, graph); }
  void create_graph(list_type<str_type>& lines, digraph<str_type>& graph) { add_names(lines, graph); }
  void create_graph(list_type<str_type>& lines, bigraph<str_type>& graph) { add_names(lines, graph); }
  void create_graph(list_type<str_type>& lines, bigraph_continuous& graph,
                    dict_type<default_id_type, default_id_type>& rows,
                    dict_type<default_id_type, default_id_type>& columns) {
    for (const auto& [a, b, w] : number(lines, rows, columns)) graph.add_edge(a, b, w);
  }

#ifdef EIGEN_WORLD_VERSION
  /// The block of the entries that this worker owns; duplicates are summed. Id: default_id_type or str_type.
  template <class Id>
  void create_matrix(list_type<str_type>& lines, Eigen::SparseMatrix<double, Eigen::RowMajor>& block,
                     dict_type<default_id_type, Id>& rows, dict_type<default_id_type, Id>& columns) {
    list_type<eigen_triple> entries;
    for (const auto& [a, b, w] : number(lines, rows, columns))
      entries.emplace_back(static_cast<int>(a), static_cast<int>(b), w);
    block.resize(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(columns.size()));
    block.setFromTriplets(entries.begin(), entries.end());
  }
  /// For fvec: the fields are an id and its row. Rows stay with the worker that read the line.
  template <class Id>
  void create_matrix(list_type<str_type>& lines, Eigen::MatrixXd& block, dict_type<default_id_type, Id>& rows) {
    list_type<list_type<str_type>> all;
    for (const auto& line : lines) all.push_back(parser_(line));
    const auto width = all.empty() ? 0 : all.front().size();
    block.resize(static_cast<Eigen::Index>(all.size()), static_cast<Eigen::Index>(width == 0 ? 0 : width - 1));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].size() != width || width == 0)
        throw data_error("found \"" + lines[i] + "\", want " + std::to_string(width) + " fields as in the first line");
      if constexpr (std::is_same_v<Id, str_type>) rows[i] = all[i][0];
      else rows[i] = cvt(all[i][0]);
      for (std::size_t j = 1; j < width; ++j)
        block(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j) - 1) = std::stod(all[i][j]);
    }
    lines.clear();
  }
#endif

 private:
  template <class Graph>
  void add_numbers(list_type<str_type>& lines, Graph& graph) {
    for (const auto& [a, b, w] : numbers(lines)) graph.add_edge(a, b, w);
  }
  template <class Graph>
  void add_names(list_type<str_type>& lines, Graph& graph) {
    for (const auto& [a, b, w] : names(lines)) graph.add_edge(a, b, w);
  }
  list_type<compact_triple_type> numbers(list_type<str_type>& lines) {
    scheduler s(comm_, pattern_, mixed_);
    list_type<list_type<compact_triple_type>> entries;
    s.lines_organize(lines, parser_, entries);
    list_type<compact_triple_type> mine;
    s.exchange(entries, mine);
    lines.clear();
    return mine;
  }
  listriple_type names(list_type<str_type>& lines) {
    scheduler s(comm_, pattern_, mixed_);
    auto entries = s.lines_organize(lines, parser_);
    lines.clear();
    return s.exchange(entries);
  }
  template <class Id>
  list_type<compact_triple_type> number(list_type<str_type>& lines, dict_type<default_id_type, Id>& rows,
                                        dict_type<default_id_type, Id>& columns) {
    list_type<compact_triple_type> numbered;
    scheduler s(comm_, pattern_, mixed_);
    if constexpr (std::is_same_v<Id, str_type>) s.index_mapping(names(lines), numbered, rows, columns);
    else s.index_mapping(numbers(lines), numbered, rows, columns);
    return numbered;
  }

  T files_;
  Comm comm_;
  parser_type parser_;
  str_type pattern_;
  bool mixed_;
};

}  // namespace compat
}  // namespace paracel
