// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <paracel/graph_loading.hpp>
#include <paracel/samples.hpp>

#include "graph.hpp"
#include "load/loader.hpp"
#include "load/parser.hpp"
#include "paracel_types.hpp"
