// SPDX-License-Identifier: BSD-3-Clause
//
// The values and deltas of `paracel_lease` and `paracel_add_once` (default/leases.cpp), with which chunk_leases.hpp
// works. Chunks are numbered through all epochs: number / chunks is the epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/codec.hpp>

namespace paracel {

/// Value of `paracel_lease`: which chunks somebody works on.
struct lease_table {
  struct lease {
    std::int64_t number = 0;
    std::int64_t expires = 0;  ///< ms of the server's clock
    MSGPACK_DEFINE(number, expires)
  };
  std::int64_t next = 0;     ///< the first chunk that nobody has taken
  std::vector<lease> open;   ///< taken and not done, by number
  std::int64_t answer = -1;  ///< to the last request: the chunk that it took, or completed; -1: none
  MSGPACK_DEFINE(next, open, answer)

  /// All chunks before it are done.
  [[nodiscard]] std::int64_t done_before() const { return open.empty() ? next : open.front().number; }
};

/// Delta of `paracel_lease`.
struct lease_request {
  std::int64_t until = 0;  ///< takes a chunk before this one
  std::int64_t done = -1;  ///< or this one is done
  std::int64_t term = 0;   ///< ms
  MSGPACK_DEFINE(until, done, term)
};

/// Value of `paracel_add_once`: a sum that knows whose contributions it has.
struct once_sum {
  std::vector<double> values;
  std::int64_t from = 0;              ///< it has those of all earlier chunks that contribute to it
  std::vector<std::int64_t> numbers;  ///< of later ones it has these, ascending
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
