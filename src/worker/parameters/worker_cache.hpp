// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tsl/robin_map.h>
#include <paracel/detail/value.hpp>

#include "client/server_group.hpp"
#include "client/sharded_keys.hpp"
#include "core/read_cache.hpp"
#include "net/protocol.hpp"
#include "worker/parameters/push_cache.hpp"
#include "worker/parameters/server_functions.hpp"
#include "worker/parameters/worker_clock.hpp"

namespace paracel {

/// What this worker has read, for as long as the staleness rule allows it to be reused; own changes are included.
/// Under ESSP the servers keep it fresh (push_cache).
///
/// Thread-safety: none; owned by the thread of its client. Lifetime: its arguments must outlive it.
class worker_cache {
 public:
  worker_cache(server_group& client, worker_clock& clock, const server_functions& functions) noexcept
      : client_(client), clock_(clock), functions_(functions) {}

  /// The entry of `key` if it may serve a read; pending pushes are processed when there seems to be none.
  const read_cache::entry* find_fresh(const std::string& key);
  /// The indices, ascending, of the keys whose entries may not serve a read. `c`: of all keys. Of a list of more than
  /// 64 these are all if none of 16 among them may: long lists that are read again are usually stale as a whole.
  [[nodiscard]] std::vector<std::uint32_t> not_fresh(const consistency& c, std::span<const std::string> keys);
  /// Regardless of age.
  [[nodiscard]] const read_cache::entry* find(std::string_view key) const { return entries_.find_fresh(key, 0); }
  [[nodiscard]] bool contains(std::string_view key) const { return entries_.contains(key); }
  /// f(key, entry) for each entry, regardless of age.
  template <class F>
  void visit(F&& f) const {
    entries_.visit(std::forward<F>(f));
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  // ---- reads

  /// A read whose reply is to be cached. While there are any, own changes are recorded.
  class read_mark {
   public:
    explicit read_mark(worker_cache& cache) : of_(&cache), sent_at_(cache.changes_) { ++cache.reads_in_flight_; }
    read_mark(read_mark&& other) noexcept : of_(std::exchange(other.of_, nullptr)), sent_at_(other.sent_at_) {}
    read_mark& operator=(read_mark&&) = delete;
    ~read_mark() {
      if (of_ != nullptr && --of_->reads_in_flight_ == 0) of_->changed_.clear();
    }

   private:
    friend class worker_cache;
    worker_cache* of_;
    std::uint64_t sent_at_;  // own changes that were made before it was sent
  };
  /// The reply to a marked read, `minimum` being the slowest worker's clock as known when it was sent. It is not cached
  /// if this worker has changed the key meanwhile. `exact`: as of read_cache::put, but only while nothing is pushed
  /// (`is_pushed`): a server compares the version with its own.
  void remember_read(std::string_view key, const value_view& value, std::uint64_t version, std::uint32_t minimum,
                     const read_mark& mark, bool exact = true);
  /// The reply to a blocking read. `wanted`: the key is to be pushed, too.
  void put(std::string_view key, const value_view& value, std::uint64_t version, std::uint32_t minimum, bool wanted);

  // ---- own changes

  /// A change of `key` is in flight: replies to reads that were sent before must not be cached.
  void changing(const std::string& key) {
    if (reads_in_flight_ != 0) changed_[key] = ++changes_;
  }
  [[nodiscard]] bool has_reads_in_flight() const noexcept { return reads_in_flight_ != 0; }
  void remember_write(const std::string& key, const value_view& value, std::uint32_t minimum);
  /// Adds a delta to the cached copy, or drops it where the servers run another function.
  void apply(const std::string& key, const value_view& delta, std::uint64_t function);
  void drop(std::string_view key) { entries_.drop(key); }
  void drop(const sharded_keys& set);
  void clear() { entries_.clear(); }

  // ---- pushes

  /// `add`: adds unsent deltas to a pushed value.
  void begin_push(push_cache::add_unsent add);
  void end_push() noexcept { pushed_.reset(); }
  [[nodiscard]] bool is_pushed() const noexcept { return pushed_ != nullptr; }
  /// Keys to be pushed from now on, which have just been read.
  void subscribe(const std::vector<std::string>& keys);
  /// The clock has ticked: the shards are asked again.
  void renew_push();
  /// A request is about to be sent that may change a key, or many (null).
  void before_request(net::verb what, const std::string_view* key) {
    if (pushed_ && !net::only_looks(what)) pushed_->changing(key, client_.next());
  }
  /// Values accepted from pushes; for tests and metrics.
  [[nodiscard]] std::uint64_t pushes_taken() const noexcept { return pushed_ ? pushed_->taken() : 0; }

 private:
  server_group& client_;
  worker_clock& clock_;
  const server_functions& functions_;
  read_cache entries_;
  std::size_t reads_in_flight_ = 0;                     // whose replies are to be cached
  std::uint64_t changes_ = 0;                           // own changes made while there are such reads
  tsl::robin_map<std::string, std::uint64_t> changed_;  // the last of these, by key
  std::unique_ptr<push_cache> pushed_;                  // null: off
  bool inexact_ = false;                                // there may be entries whose version is not theirs
};

}  // namespace paracel
