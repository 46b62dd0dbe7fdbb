// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <paracel/load.hpp>

#include "paracel_types.hpp"
