// SPDX-License-Identifier: BSD-3-Clause
//
// For programs written for Paracel 0.3. New vertex programs are better off with <paracel/pregel.hpp>, whose messages go
// from worker to worker and need no request each.
#pragma once

#include "pregel/vertex.hpp"
