// SPDX-License-Identifier: BSD-3-Clause
//
// The values and deltas of `paracel_lease` and `paracel_add_once` (default/leases.cpp), which chunk_leases.hpp uses.
// Chunks are numbered consecutively over all epochs: number / chunks is the epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/codec.hpp>

namespace paracel {

/// Value of `paracel_lease`: which chunks are being worked on.
struct lease_table {
  struct lease {
    std::int64_t number = 0;
    std::int64_t expires = 0;  ///< ms, by the server's clock
    MSGPACK_DEFINE(number, expires)
  };
  std::int64_t next = 0;     ///< the first chunk not yet taken
  std::vector<lease> open;   ///< taken but not done, by number
  std::int64_t answer = -1;  ///< to the last request: the chunk that it took, or completed; -1: none
  MSGPACK_DEFINE(next, open, answer)

  /// All chunks before it are done.
  [[nodiscard]] std::int64_t done_before() const { return open.empty() ? next : open.front().number; }
};

/// Delta of `paracel_lease`.
struct lease_request {
  std::int64_t until = 0;  ///< asks for a chunk before this one
  std::int64_t done = -1;  ///< or reports that this one is done
  std::int64_t term = 0;   ///< ms
  MSGPACK_DEFINE(until, done, term)
};

/// Value of `paracel_add_once`: a sum, and which chunks it contains.
struct once_sum {
  std::vector<double> values;
  std::int64_t from = 0;              ///< the contributions of all chunks before this one are in
  std::vector<std::int64_t> numbers;  ///< later chunks that it contains, ascending
  MSGPACK_DEFINE(values, from, numbers)
};

/// Delta of `paracel_add_once`.
struct once_delta {
  std::vector<double> values;
  std::int64_t number = 0;
  std::int64_t from = 0;  ///< all chunks before it are done
  MSGPACK_DEFINE(values, number, from)
};

}  // namespace paracel
