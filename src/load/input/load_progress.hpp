// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <paracel/comm.hpp>

#include "load/input/input.hpp"

namespace paracel {

/// What to give to input_set::visit so that a load of more than two seconds is shown by the launcher. Rank 0 speaks for
/// all: what it has of its part, the others are taken to have of theirs. Elsewhere nothing, which costs nothing.
load_progress report_load_progress(const Comm& comm, const input_set& input);

}  // namespace paracel
