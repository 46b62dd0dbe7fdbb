// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace paracel {

/// How the numbers of rows travel between a worker and the servers, which always store them in full precision.
///
/// f16: IEEE 754 binary16, 11 significant bits from 6e-5 to 65504, 2 bytes a number.
/// i8: 8 bits, a 127th of the row's greatest absolute value apart; 1 byte a number and 4 a row.
enum class wire_format : std::uint8_t { full, f16, i8 };

}  // namespace paracel
