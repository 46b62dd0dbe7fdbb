// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <string>

namespace paracel::py {

/// The main function of each program of the toolbox (alg/*/*_main.cpp), by its name. The table is generated.
const std::map<std::string, int (*)(int, char**), std::less<>>& program_table();

}  // namespace paracel::py
