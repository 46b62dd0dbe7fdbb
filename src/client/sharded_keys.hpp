// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/hash.hpp"

namespace paracel {

/// A list of keys split by shard: a prepared key set on the client's side.
/// Thread-safety: const-concurrent.
struct sharded_keys {
  /// The keys of one request: those of one shard, or a chunk of them when there are very many.
  struct part {
    std::uint32_t channel;  ///< of every client of the job
    std::uint32_t begin;    ///< in `order`
    std::uint32_t end;
    digest128 digest;
  };
  std::uint64_t job = 0;
  std::uint32_t epoch = 0;
  std::vector<std::string> keys;
  std::vector<std::uint32_t> order;  ///< indices of keys, part by part, which ascend within a part
  std::vector<part> parts;
};

}  // namespace paracel
