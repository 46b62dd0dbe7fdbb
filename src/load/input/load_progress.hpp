// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/comm.hpp>

#include "load/input/input.hpp"

namespace paracel {

/// A callback for input_set::visit so that the launcher shows a load of more than two seconds. Rank 0 reports for
/// all, assuming that the others have read the same fraction of theirs. A no-op on other ranks.
load_progress report_load_progress(const Comm& comm, const input_set& input);

/// Tells the launcher what was loaded, for its summary and report. A no-op without one. Call it on rank 0. `names`: as
/// the user gave them.
void report_loaded(const Comm& comm, const std::vector<std::string>& names, const input_set& input, std::uint64_t rows,
                   std::uint64_t features);

}  // namespace paracel
