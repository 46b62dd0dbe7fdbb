// SPDX-License-Identifier: BSD-3-Clause
//
// The arithmetic of word2vec: a step of gradient descent on some inputs x_m and some outputs y_k with labels 1 or 0,
//
//     L = - sum_m sum_k log sigma(x_m.y_k) if the label of k is 1, log sigma(-x_m.y_k) if it is 0
//     x_m += alpha sum_k (label_k - sigma(x_m.y_k)) y_k     y_k += alpha sum_m (label_k - sigma(x_m.y_k)) x_m
//
// all pairs computed from the rows before the step. The inputs of skip-gram are the words around a word, that of CBOW
// is their mean. With negative sampling the outputs are the word and its negatives, with hierarchical softmax the inner
// nodes above the word in a Huffman tree. Words around a word share its negatives: the step is three products of small
// matrices, which reads each row once.
//
// Source: Mikolov, Sutskever, Chen, Corrado, Dean, "Distributed representations of words and phrases and their
// compositionality", NIPS 2013; shared negatives: Ji, Satish, Li, Dubey, "Parallelizing word2vec in shared and
// distributed memory", 2016.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace paracel::alg {

/// Rows of floats that begin at multiples of 32 bytes; padded by zeros.
class padded_rows {
 public:
  explicit padded_rows(std::size_t width) : width_(width), stride_((width + lanes - 1) / lanes * lanes) {}

  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  [[nodiscard]] float* row(std::size_t i) noexcept { return begin_ + i * stride_; }
  /// Copies rows of `width` numbers.
  void set(std::span<const float> rows);
  /// Replaces `rows`, those of `set`, by what has been added to row i since then, times share(i).
  template <class F>
  void take_differences(std::span<float> rows, F&& share) {
    for (std::size_t i = 0; i * width_ < rows.size(); ++i) {
      const float factor = share(i);
      const float* now = row(i);
      float* old = rows.data() + i * width_;
      for (std::size_t j = 0; j < width_; ++j) old[j] = factor * (now[j] - old[j]);
    }
  }

 private:
  static constexpr std::size_t lanes = 8;
  std::size_t width_;
  std::size_t stride_;
  std::vector<float> memory_;
  float* begin_ = nullptr;
};

/// The loops are compiled for any x86-64 and for AVX2 with FMA, and selected when the program starts; the two differ in
/// the last bits. Thread-safety: none, because of its buffers.
class word2vec_kernel {
 public:
  /// `stride`: numbers in a row, a multiple of 8.
  explicit word2vec_kernel(std::size_t stride) : stride_(stride) {}

  /// The step above. A row may occur repeatedly; none is both input and output. `measure`: returns L, else 0.
  /// Cost: 6 stride inputs outputs operations.
  double step(std::span<float* const> inputs, std::span<float* const> outputs, std::span<const float> labels,
              float alpha, bool measure);

 private:
  std::size_t stride_;
  std::vector<float> products_;  // input by input; then alpha (label - sigma)
  std::vector<float> moves_;     // eight numbers for each input and output
};

}  // namespace paracel::alg
