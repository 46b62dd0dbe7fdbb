// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/free_memory.hpp>

#include "alg/gbdt/column_offsets.hpp"

namespace paracel {
namespace {

TEST(FreeMemory, NothingIsKept) {
  std::vector<int> numbers(1000);
  free_memory(numbers);
  EXPECT_EQ(numbers.capacity(), 0U);
  std::string text(1000, 'x');
  free_memory(text);
  EXPECT_EQ(text.capacity(), std::string().capacity());
}

TEST(FreeMemory, ABufferThatIsUsedAgainKeepsSoMuchAndNoMore) {
  std::vector<double> numbers(1000);
  free_if_larger(numbers, 1000 * sizeof(double));
  EXPECT_EQ(numbers.size(), 1000U);
  free_if_larger(numbers, 1000 * sizeof(double) - 1);
  EXPECT_EQ(numbers.capacity(), 0U);
}

TEST(FreeMemory, RowsThatBecameFloatsAreNoLongerDoubles) {
  for (const bool dense : {false, true}) {
    sample_rows rows;
    rows.dense = dense;
    rows.columns = 2;
    rows.row_count = 2;
    rows.value = {1, 2, 3, 4};
    if (!dense) {
      rows.column = {0, 1, 0, 1};
      rows.row_begin = {0, 2, 4};
    }
    alg::column_offsets().apply(rows);
    EXPECT_EQ(rows.floats, (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(rows.value.capacity() + rows.column.capacity(), 0U);
    EXPECT_EQ(rows.row_begin.capacity(), 1U);
  }
}

}  // namespace
}  // namespace paracel
