// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

namespace paracel {

/// That many different tcp ports that are free now. Throws: error when the system has none.
std::vector<std::size_t> free_tcp_ports(std::size_t count);

}  // namespace paracel
