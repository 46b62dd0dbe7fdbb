// SPDX-License-Identifier: BSD-3-Clause
#include "load/process_grid.hpp"

#include "paracel/error.hpp"

namespace paracel {

process_grid process_grid::of(const std::string& pattern, std::size_t workers) {
  if (pattern == "fmap" || pattern == "fset" || pattern == "fvec" || pattern == "linesplit") return {workers, 1};
  if (pattern == "smap") return {1, workers};
  if (pattern == "fsmap") {
    std::size_t npx = 1;
    for (std::size_t d = 2; d * d <= workers; ++d)
      if (workers % d == 0) npx = d;
    // A prime number of workers has no grid: whole rows, as in 0.3.
    return npx == 1 ? process_grid{workers, 1} : process_grid{npx, workers / npx};
  }
  throw usage_error("pattern \"" + pattern + "\", want linesplit, fmap, smap, fsmap, fvec or fset");
}

}  // namespace paracel
