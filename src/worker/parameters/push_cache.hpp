// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tsl/robin_map.h>
#include <paracel/detail/value.hpp>

#include "client/server_group.hpp"
#include "core/read_cache.hpp"

namespace paracel {

/// Keeps a worker's cache fresh: the shards push subscribed keys that have changed when the clock ticks (ESSP).
///
/// A pushed value enters the cache only when it is known to include all changes by this worker. Replies of a shard
/// arrive in the order in which it sent them, so it does if all of these to the key have been answered when it arrives;
/// while one is in flight the value is dropped, and the next read fetches it. Changes still combined here are added to
/// it.
///
/// Thread-safety: owned by the thread of its client.
class push_cache {
 public:
  /// Adds unsent deltas to a pushed value. False: impossible.
  using add_unsent = std::function<bool(std::string_view key, read_cache::entry& e)>;

  /// A key that was not read for this many iterations is unsubscribed.
  static constexpr std::uint32_t forgotten_after = 8;

  /// `heard` is called with the slowest worker's clock. Lifetime: client and cache must outlive it.
  push_cache(server_group& client, read_cache& cache, add_unsent add, std::function<void(std::uint32_t)> heard)
      : client_(client),
        cache_(cache),
        add_(std::move(add)),
        heard_(std::move(heard)),
        epoch_(client.servers().epoch) {}

  /// The key has been read through the cache in this iteration.
  void wants(const std::string& key, std::uint32_t iteration);
  /// A change of this worker is sent as number `s`: of a key, or of many (null).
  void changing(const std::string_view* key, kvclt::sequence s);
  /// Subscribes at every shard without a parked request. `minimum`: the slowest worker's clock as known here.
  void renew(std::uint32_t minimum, std::uint32_t iteration);
  /// Values accepted from pushes; for tests and metrics.
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }

 private:
  struct interest {
    std::uint32_t iteration = 0;      // of the last read
    kvclt::sequence last_change = 0;  // by this worker
  };
  struct place {  // a shard
    std::uint32_t server = 0;
    std::uint32_t shard = 0;
    std::vector<std::string> keys;
    bool parked = false;
    bool refused = false;
  };
  struct hash {
    std::size_t operator()(std::string_view key) const noexcept { return hash_key(key); }
  };

  place& place_of(const std::string& key);
  void move();
  void subscribe(std::size_t at, std::uint32_t minimum);
  void take(std::size_t at, const std::vector<std::string>& keys, const kv_result& r);
  void take(const std::string& key, const net::reply_item& item, std::uint32_t minimum);
  [[nodiscard]] bool is_changing(std::string_view key);

  server_group& client_;
  read_cache& cache_;
  add_unsent add_;
  std::function<void(std::uint32_t)> heard_;
  tsl::robin_map<std::string, interest, hash, std::equal_to<>> wanted_;
  std::uint32_t epoch_;  // of these places
  std::vector<place> places_;
  std::vector<kvclt::sequence> many_;  // this worker's changes of many keys that may be unanswered
  std::uint32_t iteration_ = 0;
  std::uint64_t taken_ = 0;
  std::vector<std::byte> body_;
  std::shared_ptr<push_cache*> self_ = std::make_shared<push_cache*>(this);  // replies check whether it still exists
};

}  // namespace paracel
