// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <paracel/comm.hpp>

#include "load/input/input.hpp"

namespace paracel {

/// A callback for input_set::visit so that the launcher shows a load of more than two seconds. Rank 0 reports for
/// all, assuming that the others have read the same fraction of theirs. A no-op on other ranks.
load_progress report_load_progress(const Comm& comm, const input_set& input);

}  // namespace paracel
