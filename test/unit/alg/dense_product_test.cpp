// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/solvers/dense_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

std::vector<double> numbers(std::size_t n, std::uint64_t seed) {
  std::vector<double> out(n);
  counter_random random(seed);
  for (auto& v : out) v = random.normal();
  return out;
}

TEST(DenseProduct, IsTheSumWrittenOutForEveryShape) {
  for (const std::size_t rows : {1U, 2U, 5U, 6U, 12U, 13U, 29U}) {
    for (const std::size_t columns : {8U, 16U, 40U}) {
      for (const std::size_t depth : {0U, 1U, 7U, 64U}) {
        const auto a = numbers(rows * (depth + 3), 1);
        const auto b = numbers(depth * (columns + 1) + 8, 2);
        auto out = numbers(rows * (columns + 2), 3);
        const auto before = out;
        add_product(a.data(), depth + 3, 1, b.data(), columns + 1, out.data(), columns + 2, rows, columns, depth);
        for (std::size_t i = 0; i < rows; ++i) {
          for (std::size_t j = 0; j < columns + 2; ++j) {
            double expected = before[i * (columns + 2) + j];
            for (std::size_t t = 0; j < columns && t < depth; ++t) {
              expected += a[i * (depth + 3) + t] * b[t * (columns + 1) + j];
            }
            EXPECT_NEAR(out[i * (columns + 2) + j], expected, 1e-13 * (1 + static_cast<double>(depth)));
          }
        }
      }
    }
  }
}

TEST(DenseProduct, TheUpperPartOfAGramMatrixIsComplete) {
  for (const std::size_t n : {1U, 8U, 13U, 50U}) {
    const std::size_t width = product_padded(n);
    const std::size_t depth = 33;
    auto x = numbers(depth * width, 4);
    std::vector<double> out(n * width);
    add_product(x.data(), 1, width, x.data(), width, out.data(), width, n, width, depth, true);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i; j < n; ++j) {
        double expected = 0;
        for (std::size_t t = 0; t < depth; ++t) expected += x[t * width + i] * x[t * width + j];
        EXPECT_NEAR(out[i * width + j], expected, 1e-12);
      }
    }
  }
}

TEST(DenseProduct, ARowOfTheResultDoesNotDependOnTheOthers) {
  const std::size_t d = 37;
  const auto a = numbers(20 * d, 5);
  const auto b = numbers(d * 16, 6);
  std::vector<double> all(20 * 16);
  add_product(a.data(), d, 1, b.data(), 16, all.data(), 16, 20, 16, d);
  for (std::size_t i = 0; i < 20; ++i) {
    std::vector<double> one(16);
    add_product(a.data() + i * d, d, 1, b.data(), 16, one.data(), 16, 1, 16, d);
    for (std::size_t j = 0; j < 16; ++j) EXPECT_EQ(one[j], all[i * 16 + j]);
  }
}

}  // namespace
}  // namespace paracel::alg
