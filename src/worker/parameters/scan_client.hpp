// SPDX-License-Identifier: BSD-3-Clause
//
// Scans over all shards of all servers in parallel. Each shard is asked for a chunk, and for the next one while that is
// processed, so the worker never holds more than two chunks a shard.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/detail/value.hpp>

#include "net/protocol.hpp"
#include "net/scan_codec.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {

/// The keys of a scan.
struct key_selection {
  std::string_view prefix;
  std::uint64_t filter = 0;  ///< id of a registered filter; 0: none
};

/// Thread-safety: owned by the thread that runs the algorithm.
/// Lifetime: the parasrv outlives it.
class scan_client {
 public:
  using put_item = std::function<void(std::string_view key, const value_view& value)>;

  explicit scan_client(parasrv& servers) noexcept : servers_(servers) {}

  /// Calls `put` for each key, in no particular order; it may use the servers, and its exceptions end the scan. The
  /// views are valid during the call. `chunk_end`, if given, is called between chunks.
  void scan(const key_selection& keys, bool keys_only, const put_item& put,
            const std::function<void()>& chunk_end = nullptr);
  /// The k keys with the largest single number, the largest first; ties by key.
  void top_k(const key_selection& keys, std::uint32_t k, const put_item& put);
  /// `bins` 0: no histogram.
  net::summary reduce(const key_selection& keys, double low = 0, double high = 0, std::uint32_t bins = 0);
  /// Returns the number of removed keys.
  std::uint64_t remove_if(const key_selection& keys);

 private:
  /// How far a partition has been scanned.
  using place_of = std::function<net::scan_cursor(std::uint16_t partition)>;
  using begin_again = std::function<void(const place_of&)>;
  /// Asks every shard from cursor to cursor. `ask` writes the payload for a cursor; `look` receives each reply. When
  /// partitions have moved to other servers meanwhile, `again` is told how far the scan came, and it restarts from
  /// there.
  void scan(net::verb what, std::uint16_t flags, const key_selection& keys,
            const std::function<void(std::vector<std::byte>&, net::scan_cursor)>& ask,
            const std::function<void(const net::reply_header&, std::span<const std::byte> body)>& look,
            const begin_again& again);

  parasrv& servers_;
};

}  // namespace paracel
