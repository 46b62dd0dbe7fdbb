// SPDX-License-Identifier: BSD-3-Clause
//
// The greatest singular values of a matrix that is given only by its products, and their vectors: block Lanczos on A'A
// with full reorthogonalisation and thick restarts, which keeps a basis of right vectors only.
//
//     V block -> W = A'(A V) -> next V block (W orthogonalised against all of V)     columns of T: V'W, V_next'W: R
//
// So A'A V = V T + V_next R. With T = Q L Q' the right vectors are V Q, their residual |R q| over the last block, known
// without a product; divided by s it is that of the triplet. At the end A V = U S Q' yields all triplets with the
// accuracy of A rather than A'A. When the basis is full, the best vectors and the next block are kept. A block of k + 2
// random columns finds singular values of multiplicity up to k + 2.
//
// Squared values lose digits: if the k-th is below 1e-5 of the greatest, or a residual is too large, block
// Golub-Kahan-Lanczos follows, with bases on both sides.
//
//     V block -> Z = A V -> U block (Z orthogonalised against all of U)        columns of B: U' Z
//     U block -> W = A'U -> next V block (W orthogonalised against all of V)   the part of A'U outside V: R
//
// So A V = U B exactly and A'U = V B' + V_next R. With B = P S Q' the triplets are S, U P, V Q; their residual |A'u - s
// v| is |R p|.
//
// Source: Golub, Luk, Overton, "A block Lanczos method for computing the singular values and corresponding singular
// vectors of a matrix", TOMS 1981; Baglama, Reichel, "Augmented implicitly restarted Lanczos bidiagonalization
// methods", SISC 2005; blocks are made orthonormal as in Stathopoulos, Wu, "A block orthogonalization procedure with
// constant synchronization requirements", SISC 2002.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <Eigen/Dense>

#include <paracel/paralg.hpp>

namespace paracel::alg {

/// Columns of a tall matrix of which this worker has some rows; stored row-major.
using tall_block = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A matrix of which this worker owns some rows and some columns. Every call is a collective.
class product_operator {
 public:
  product_operator() = default;
  product_operator(const product_operator&) = delete;
  product_operator& operator=(const product_operator&) = delete;
  virtual ~product_operator() = default;

  [[nodiscard]] virtual std::size_t rows() const = 0;         ///< own
  [[nodiscard]] virtual std::size_t columns() const = 0;      ///< own
  [[nodiscard]] virtual std::uint64_t first_row() const = 0;  ///< global number of the first own row
  [[nodiscard]] virtual std::uint64_t first_column() const = 0;
  /// u := A v and v := A'u. Shape: columns() and rows() by any number.
  virtual void times(const tall_block& v, tall_block& u) = 0;
  virtual void transposed_times(const tall_block& u, tall_block& v) = 0;
  /// w := A'(A v), which may need one pass over A only.
  virtual void gram_times(const tall_block& v, tall_block& w);
  /// Sums over the workers, bit-identical on each.
  virtual void sum(std::span<double> values) = 0;
  virtual void largest(std::span<double> values) = 0;
};

struct krylov_options {
  std::size_t k = 10;
  /// The maximum number of columns of a basis; 0: ten blocks of k + 2 (both sides: five), and up to 40, within 1 GB a
  /// worker, while the residual falls too slowly for the steps that are left.
  std::size_t basis = 0;
  int steps = 300;  ///< maximum number of blocks, two products each
  /// The job whose checkpoints include the iteration (resumable_loop); null: none. The operator must make no commits.
  paralg* job = nullptr;
  double tolerance = 1e-10;  ///< residual relative to the greatest singular value
  std::uint64_t seed = 0;
  /// Called after each step: step, number of converged triplets, greatest residual of the first k.
  std::function<void(int, std::size_t, double)> progress{};
};

struct singular_triplets {
  std::vector<double> sigma;     ///< descending; fewer than k if the rank is less
  std::vector<double> residual;  ///< max(|A v - s u|, |A'u - s v|) of each
  Eigen::MatrixXd u;             ///< own rows
  Eigen::MatrixXd v;             ///< own columns
  int steps = 0;
  bool converged = false;
};
/// Signs are such that the entry of each u with the largest absolute value (ties by row) is positive.
/// Cost: for each step a product with A'A of k + 2 columns, 6 sums (8 where columns are nearly dependent) of at most
/// basis (k + 2) numbers, and about 6 columns basis (k + 2) multiplications and additions; two products at the end.
/// With bases on both sides: two products, 16 sums and 6 (rows + columns) basis (k + 2).
singular_triplets block_krylov(product_operator& a, const krylov_options& options);

}  // namespace paracel::alg
