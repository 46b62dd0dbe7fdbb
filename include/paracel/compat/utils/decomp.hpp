// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace paracel {

/// Grids of np workers: np x 1, 1 x np, and as square as its divisors allow (a prime: np x 1, without row_master 1 x
/// np).
inline void npfactx(int np, int& nx, int& ny) {
  nx = np;
  ny = 1;
}
inline void npfacty(int np, int& nx, int& ny) {
  nx = 1;
  ny = np;
}
inline void npfact2d(int np, int& nx, int& ny, bool row_master = true) {
  int less = 1;
  for (int d = 2; d * d <= np; ++d)
    if (np % d == 0) less = d;
  if (less == 1) less = np;  // a prime: one row or one column of workers
  nx = row_master ? less : np / less;
  ny = np / nx;
}

}  // namespace paracel
