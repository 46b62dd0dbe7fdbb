// SPDX-License-Identifier: BSD-3-Clause
//
// Loading graphs and matrices in Paracel's way: a base of `paralg`. Each worker reads its part of the files, a parser
// splits lines into fields, and each entry is sent to the worker that owns it. The result is the same for every number
// of workers; the pattern only decides ownership, with the workers as a grid of npx times npy
// (get_decomp_info):
//
//     fmap       n x 1: whole rows (the edges that leave a vertex); the default for graphs
//     fset       the same, with mixed lines (below)
//     smap       1 x n: whole columns
//     fsmap      about as many in both directions: blocks; the default for sparse matrices
//     fvec       n x 1; of a dense matrix: rows stay with the worker that read them
//     linesplit  as fmap
//
// Worker x * npy + y owns the entries whose row has x = hash(row) modulo npx and whose column y = hash(column) modulo
// npy; the hash is XXH3-64 of a name's bytes or a number's eight bytes. Ownership does not depend on the file.
//
// The meaning of a line's fields (without a parser: split at commas, semicolons, tabs and blanks):
//
//     a,b                weight 1
//     a,b:w  a,b|w  a,b,w
//     a,b,c:w,d          with mix_flag: a with b, a with c, a with d
//
// Blank lines are skipped. A duplicate entry replaces the weight in a graph, is kept in addition to the first in a
// bigraph_continuous, and is added to it in a matrix, all in the order of the files.
//
// Throws: data_error file:line:column (file:line with a parser), the first of all files, on every worker; usage_error
// for an unknown pattern. An exception of a parser becomes a data_error. Blocks: all are collectives, with the same
// arguments on every worker. Cost: reads its share of the bytes; an entry is sent once, 24 bytes or its names and 16,
// in rounds of 8 MB a worker.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/adjacency.hpp>
#include <paracel/interner.hpp>
#include <paracel/types.hpp>

// Declared here so that a program without matrices does not compile Eigen.
namespace Eigen {
template <typename Scalar, int Options, typename StorageIndex>
class SparseMatrix;
template <typename Scalar, int Rows, int Columns, int Options, int MaxRows, int MaxColumns>
class Matrix;
}  // namespace Eigen

namespace paracel {

/// Eigen::SparseMatrix<double, Eigen::RowMajor> and Eigen::MatrixXd.
using sparse_matrix = Eigen::SparseMatrix<double, 1, int>;
using dense_matrix = Eigen::Matrix<double, -1, -1, 0, -1, -1>;

template <class T>
class digraph;
template <class T>
class undirected_graph;
template <class T>
class bigraph;
class bigraph_continuous;

/// A parser from any callable that takes a line, and optionally one or two separators, and returns its fields.
template <class P>
parser_type gen_parser(P parser) {
  return [parser = std::move(parser)](const str_type& line) mutable { return parser(line); };
}
template <class P>
parser_type gen_parser(P parser, char separator) {
  return [parser = std::move(parser), separator](const str_type& line) mutable { return parser(line, separator); };
}
template <class P>
parser_type gen_parser(P parser, char separator1, char separator2) {
  return [parser = std::move(parser), separator1, separator2](const str_type& line) mutable {
    return parser(line, separator1, separator2);
  };
}

class graph_loading {
 public:
  explicit graph_loading(Comm comm) : comm_(std::move(comm)) { set_decomp_info("linesplit"); }

  /// Sets the grid of get_decomp_info to that of a pattern, as loading a graph or a matrix does. Throws: usage_error.
  void set_decomp_info(const str_type& pattern);
  void get_decomp_info(int& x, int& y) const {
    x = npx_;
    y = npy_;
  }

  // ---- graphs; include <paracel/graph.hpp>. Edges are added to the existing ones. ids: default_id_type or
  // str_type

  template <class T, class Id>
  void paracel_load_as_graph(digraph<Id>& graph, const T& files, const parser_type& parser,
                             const str_type& pattern = "fmap", bool mix_flag = false) {
    add_to(graph, request{list_of(files), &parser, pattern, mix_flag});
  }
  template <class T, class Id>
  void paracel_load_as_graph(digraph<Id>& graph, const T& files, const str_type& pattern = "fmap",
                             bool mix_flag = false) {
    add_to(graph, request{list_of(files), nullptr, pattern, mix_flag});
  }
  /// An edge a,b is owned with a as row and b as column, as they stand in the line.
  template <class T, class Id>
  void paracel_load_as_graph(undirected_graph<Id>& graph, const T& files, const parser_type& parser,
                             const str_type& pattern = "fmap", bool mix_flag = false) {
    add_to(graph, request{list_of(files), &parser, pattern, mix_flag});
  }
  template <class T, class Id>
  void paracel_load_as_graph(undirected_graph<Id>& graph, const T& files, const str_type& pattern = "fmap",
                             bool mix_flag = false) {
    add_to(graph, request{list_of(files), nullptr, pattern, mix_flag});
  }
  template <class T, class Id>
  void paracel_load_as_graph(bigraph<Id>& graph, const T& files, const parser_type& parser,
                             const str_type& pattern = "fmap", bool mix_flag = false) {
    add_to(graph, request{list_of(files), &parser, pattern, mix_flag});
  }
  template <class T, class Id>
  void paracel_load_as_graph(bigraph<Id>& graph, const T& files, const str_type& pattern = "fmap",
                             bool mix_flag = false) {
    add_to(graph, request{list_of(files), nullptr, pattern, mix_flag});
  }
  /// Vertices are numbered like the rows and columns of a matrix; the graph is replaced.
  template <class T>
  void paracel_load_as_graph(bigraph_continuous& graph, dict_type<default_id_type, default_id_type>& row_map,
                             dict_type<default_id_type, default_id_type>& col_map, const T& files,
                             const parser_type& parser, const str_type& pattern = "fmap", bool mix_flag = false) {
    load(graph, row_map, col_map, request{list_of(files), &parser, pattern, mix_flag});
  }
  template <class T>
  void paracel_load_as_graph(bigraph_continuous& graph, dict_type<default_id_type, default_id_type>& row_map,
                             dict_type<default_id_type, default_id_type>& col_map, const T& files,
                             const str_type& pattern = "fmap", bool mix_flag = false) {
    load(graph, row_map, col_map, request{list_of(files), nullptr, pattern, mix_flag});
  }
  /// `auto g = paracel_load_as_graph<paracel::digraph<>>("edges.txt");` Further arguments as for the graph above.
  template <class Graph, class... A>
  Graph paracel_load_as_graph(const A&... arguments) requires std::is_default_constructible_v<Graph> {
    Graph graph;
    paracel_load_as_graph(graph, arguments...);
    return graph;
  }

  // ---- matrices; include <Eigen/Sparse> or <Eigen/Dense>. ids: default_id_type or str_type
  //
  // Rows are numbered 0, 1, ... in ascending order of the ids that occur on the workers with the same rows (x of the
  // grid), and columns likewise; row_map and col_map map numbers to ids. With fmap, every worker has all columns.

  template <class T, class Id>
  void paracel_load_as_matrix(sparse_matrix& matrix, dict_type<default_id_type, Id>& row_map,
                              dict_type<default_id_type, Id>& col_map, const T& files, const parser_type& parser,
                              const str_type& pattern = "fsmap", bool mix_flag = false) {
    load(matrix, row_map, col_map, request{list_of(files), &parser, pattern, mix_flag});
  }
  template <class T, class Id>
  void paracel_load_as_matrix(sparse_matrix& matrix, dict_type<default_id_type, Id>& row_map,
                              dict_type<default_id_type, Id>& col_map, const T& files,
                              const str_type& pattern = "fsmap", bool mix_flag = false) {
    load(matrix, row_map, col_map, request{list_of(files), nullptr, pattern, mix_flag});
  }
  template <class T, class Id>
  void paracel_load_as_matrix(sparse_matrix& matrix, dict_type<default_id_type, Id>& row_map, const T& files,
                              const parser_type& parser, const str_type& pattern = "fsmap", bool mix_flag = false) {
    dict_type<default_id_type, Id> col_map;
    paracel_load_as_matrix(matrix, row_map, col_map, files, parser, pattern, mix_flag);
  }
  /// Ids are numbers.
  template <class T>
  void paracel_load_as_matrix(sparse_matrix& matrix, const T& files, const parser_type& parser,
                              const str_type& pattern = "fsmap", bool mix_flag = false) {
    dict_type<default_id_type, default_id_type> row_map;
    paracel_load_as_matrix(matrix, row_map, files, parser, pattern, mix_flag);
  }
  /// Lines `id,value,value,...`, all of the same length; each worker has those that it read (pattern fvec), in their
  /// order. Without a parser | and : separate fields, too.
  template <class T, class Id>
  void paracel_load_as_matrix(dense_matrix& matrix, dict_type<default_id_type, Id>& row_map, const T& files,
                              const parser_type& parser) {
    load(matrix, row_map, request{list_of(files), &parser, "fvec", true});
  }
  template <class T, class Id>
  void paracel_load_as_matrix(dense_matrix& matrix, dict_type<default_id_type, Id>& row_map, const T& files) {
    load(matrix, row_map, request{list_of(files), nullptr, "fvec", true});
  }
  template <class T>
  void paracel_load_as_matrix(dense_matrix& matrix, const T& files, const parser_type& parser) {
    dict_type<default_id_type, default_id_type> row_map;
    paracel_load_as_matrix(matrix, row_map, files, parser);
  }
  /// `auto m = paracel_load_as_matrix<Eigen::MatrixXd>(row_map, "vectors.txt", parser);` Further arguments as for
  /// the matrix above; the maps are filled.
  template <class Matrix, class... A>
  Matrix paracel_load_as_matrix(A&&... arguments) requires std::is_default_constructible_v<Matrix> {
    Matrix matrix;
    paracel_load_as_matrix(matrix, std::forward<A>(arguments)...);
    return matrix;
  }

 protected:
  ~graph_loading() = default;
  static list_type<str_type> list_of(const str_type& file) { return {file}; }
  static const list_type<str_type>& list_of(const list_type<str_type>& files) { return files; }

  Comm comm_;

 private:
  struct request {
    list_type<str_type> files;
    const parser_type* parser;  // null: the built-in one
    str_type pattern;
    bool mixed;
  };
  template <class Id>
  void add_to(bigraph<Id>& graph, const request& r) {
    interner<Id> left, right;
    edge_buffer edges;
    load_entries(r, left, right, edges);
    graph.add_edges(std::move(left), std::move(right), std::move(edges));
  }
  template <template <class> class Graph, class Id>
  void add_to(Graph<Id>& graph, const request& r) {
    interner<Id> ids;
    edge_buffer edges;
    load_entries(r, ids, ids, edges);
    graph.add_edges(std::move(ids), std::move(edges));
  }
  template <class Id>
  static void fill(dict_type<default_id_type, Id>& map, list_type<Id>&& ids) {
    map.clear();
    map.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) map.emplace(i, std::move(ids[i]));
  }
  template <class To, class Id>
  void load(To& to, dict_type<default_id_type, Id>& row_map, dict_type<default_id_type, Id>& col_map,
            const request& r) {
    list_type<Id> rows, columns;
    auto entries = load_block(r, rows, columns);
    fill(to, std::move(entries), rows.size(), columns.size());
    fill(row_map, std::move(rows));
    fill(col_map, std::move(columns));
  }
  template <class Id>
  void load(dense_matrix& to, dict_type<default_id_type, Id>& row_map, const request& r) {
    list_type<Id> rows;
    load_rows(r, rows, to);
    fill(row_map, std::move(rows));
  }

  // In src/load/graph_loading.cpp, for both kinds of id. `rows` and `columns` may be the same index.
  template <class Id>
  void load_entries(const request& r, interner<Id>& rows, interner<Id>& columns, edge_buffer& entries);
  template <class Id>
  edge_buffer load_block(const request& r, list_type<Id>& rows, list_type<Id>& columns);
  void fill(sparse_matrix& to, edge_buffer&& entries, std::size_t rows, std::size_t columns);
  static void fill(bigraph_continuous& to, edge_buffer&& entries, std::size_t rows, std::size_t columns);
  template <class Id>
  void load_rows(const request& r, list_type<Id>& rows, dense_matrix& to);

  int npx_ = 1;
  int npy_ = 1;
};

}  // namespace paracel
