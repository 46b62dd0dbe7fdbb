// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "paracel/comm.hpp"
#include "paracel/error.hpp"

namespace paracel {

/// Calls f() on every worker. When some of them find their input wrong, all throw the error of the lowest rank, which is the
/// first in the order of the input.
/// Throws: data_error, the same on every worker. Blocks: a collective.
template <class F>
void together(Comm& comm, F&& f) {
  std::string problem;
  try {
    f();
  } catch (const data_error& e) {
    problem = e.what();
  }
  for (const auto& p : comm.allgather(problem)) {
    if (!p.empty()) throw data_error(p);
  }
}

}  // namespace paracel
