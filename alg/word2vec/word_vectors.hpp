// SPDX-License-Identifier: BSD-3-Clause
//
// Vectors of words in the two formats of the original word2vec, and queries on them.
//
//     words width\n                          both forms
//     word number number ... number \n       text: a line a word
//     word <width floats>\n                  binary: the word, a blank, 4 bytes a number, little-endian
//
// Words have no white space. Nothing in a file says which format it has: one whose name ends in .bin is binary.
// Accepted as well: no blank at the end of a line, \r\n, no line feed after the numbers of a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/interner.hpp>

#include "alg/common/solvers/top_k_neighbours.hpp"

namespace paracel::alg {

struct word_vectors {
  interner<std::string> words;
  std::size_t width = 0;
  std::vector<float> value;

  [[nodiscard]] std::size_t size() const noexcept { return words.size(); }
  [[nodiscard]] std::span<const float> row(std::size_t i) const { return std::span(value).subspan(i * width, width); }
};

/// Throws: data_error that says where (text: file:line:column): a number of words or numbers other than the header's, a
/// number that is not finite, a word that occurs twice or has white space, no words.
word_vectors parse_word_vectors(const std::string& file, std::string_view text, bool binary);
/// From a file, or from model.json or its folder with vectors in npy. Throws: data_error.
word_vectors read_word_vectors(const std::string& path);

std::string word_vectors_header(std::size_t words, std::size_t width);
void append_word_vector(std::string& to, std::string_view word, std::span<const float> row, bool binary);

/// Finds nearest words. Lifetime: the vectors must outlive it. Thread-safety: const-concurrent. Cost: a copy of them.
class word_neighbours {
 public:
  explicit word_neighbours(const word_vectors& vectors);

  /// The cosine of two words.
  [[nodiscard]] double similarity(std::uint32_t a, std::uint32_t b) const;
  /// The words nearest by cosine, best first: to word a; or to b - a + c, of vectors of length 1: what is to c as b to
  /// a. The words of the question are excluded. Cost: O(words width)
  [[nodiscard]] std::vector<neighbour> nearest(std::span<const std::uint32_t> question, std::size_t k) const;

 private:
  [[nodiscard]] std::span<const float> row(std::size_t i) const { return std::span(unit_).subspan(i * width_, width_); }

  std::size_t width_;
  std::vector<float> unit_;  // rows of length 1
};

/// Spearman's rank correlation; equal values have their mean rank. NaN for fewer than two pairs, or only equal values.
double spearman(std::span<const double> a, std::span<const double> b);

}  // namespace paracel::alg
