// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <paracel/detail/bytes.hpp>

namespace paracel::test {

/// Bytes of a message: others for another seed, and nowhere the same for long.
inline byte_vector filled(std::size_t size, unsigned seed) {
  byte_vector all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return all;
}

}  // namespace paracel::test
