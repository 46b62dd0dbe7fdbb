// SPDX-License-Identifier: BSD-3-Clause
//
// For programs written for Paracel 0.3. New vertex programs should use <paracel/pregel.hpp>, whose messages are sent
// from worker to worker without a request each.
#pragma once

#include "pregel/vertex.hpp"
