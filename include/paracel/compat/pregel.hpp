// SPDX-License-Identifier: BSD-3-Clause
//
// For programs written for Paracel 0.3. New vertex programs should use <paracel/pregel.hpp>, which sends messages from
// worker to worker, not as one request each.
#pragma once

#include "pregel/vertex.hpp"
