// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <paracel/graph.hpp>
#include <paracel/graph_traversal.hpp>

#include "paracel_types.hpp"
#include "utils.hpp"
