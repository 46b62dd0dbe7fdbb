// SPDX-License-Identifier: BSD-3-Clause
#include "dense_kernel.hpp"

namespace paracel::alg::dense_detail {

PARACEL_WIDE_VECTORS
void block_product(const double* a, std::size_t rows, const panel_column* panels, std::size_t panel_count,
                   std::size_t width, double* out) {
  const std::size_t stride = panel_count * panel_rows;
  std::size_t i = 0;
  for (; i + tile_rows <= rows; i += tile_rows) {
    for (std::size_t p = 0; p < panel_count; ++p) {
      tile<tile_rows>(a + i * width, panels + p * width, width, out + i * stride + p * panel_rows, stride);
    }
  }
  for (; i < rows; ++i) {
    for (std::size_t p = 0; p < panel_count; ++p) {
      tile<1>(a + i * width, panels + p * width, width, out + i * stride + p * panel_rows, stride);
    }
  }
}

}  // namespace paracel::alg::dense_detail
