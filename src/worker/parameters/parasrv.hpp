// SPDX-License-Identifier: BSD-3-Clause
//
// The servers as one worker sees them. What it is made of:
//
//   server_group      the ring and the client of each server
//   worker_clock      this worker's clock and the consistency in force
//   worker_cache      values that may be re-read without a request
//   combined_updates  updates that are summed until the commit
//   server_functions  functions of plug-ins registered at the servers
//   request_failures  errors of requests, until they are reported
//   parasrv_multi     calls on many keys
//   parasrv           calls on one key, futures, commits, and how these interact
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/types.hpp>

#include "client/server_group.hpp"
#include "worker/job/request_failures.hpp"
#include "worker/job/session.hpp"
#include "worker/parameters/combined_updates.hpp"
#include "worker/parameters/parasrv_multi.hpp"
#include "worker/parameters/server_functions.hpp"
#include "worker/parameters/worker_cache.hpp"
#include "worker/parameters/worker_clock.hpp"

namespace paracel {

/// Thread-safety: owned by the thread that runs the algorithm.
class parasrv {
  friend class async_result;

 public:
  using put_value = std::function<void(const value_view&)>;

  /// `begin`: iterations that this worker had finished in other parasrvs when this one was first used.
  parasrv(std::shared_ptr<session> job, const consistency& c, std::uint32_t begin);
  ~parasrv();
  parasrv(const parasrv&) = delete;
  parasrv& operator=(const parasrv&) = delete;

  void set_model(consistency_model model);
  /// Throws: config_error, as paralg says.
  void set_consistency(const std::string& prefix, const consistency& c);
  [[nodiscard]] worker_clock& clock() noexcept { return clock_; }
  [[nodiscard]] worker_cache& cache() noexcept { return cache_; }
  [[nodiscard]] server_functions& functions() noexcept { return functions_; }
  [[nodiscard]] request_failures& failures() noexcept { return failures_; }
  [[nodiscard]] parasrv_multi& many() noexcept { return many_; }
  [[nodiscard]] server_group& client() noexcept { return *client_; }

  // ---- one key

  /// False when the key does not exist. Blocks: as the rule of paralg.hpp says.
  bool read(const std::string& key, const put_value& put);
  /// Zero-copy: the entry of the cache, or null. Under ASP, too, the value is placed in the cache, but each
  /// call asks the server. Lifetime: until the next call of this object.
  const read_cache::entry* read_kept(const std::string& key);
  void write(const std::string& key, const value_view& value);
  async_functor_type update(const std::string& key, const value_view& delta, std::uint64_t function);
  /// `put` may be empty; the new value is then not sent back, unless the cache needs it.
  void bupdate(const std::string& key, const value_view& delta, std::uint64_t function, const put_value& put);
  /// Staged under BSP as `update` is.
  async_functor_type update_default(const std::string& key, const value_view& initial, const value_view& delta,
                                    std::uint64_t function);
  /// Replaces the value if its version is `version` (0: if it does not exist); `version` becomes the new or the
  /// actual one. Immediate; under BSP it sees what a read would.
  bool cas(const std::string& key, std::uint64_t& version, const value_view& value);
  /// As `read`, but never from the cache; returns the version, 0: does not exist.
  std::uint64_t read_version(const std::string& key, const put_value& put);
  bool contains(const std::string& key);
  bool remove(const std::string& key);

  // ---- asynchronous. A number identifies the request: `finish` waits for it, and its error is thrown
  // there or, if it is never finished, by `settle`. Output arguments must live until then.

  /// `then`, if given, runs in `settle` or `poll` after the value was put; a missing key is then an error.
  kvclt::sequence start_read(const std::string& key, value_sink to, std::function<void()> then = {});
  kvclt::sequence start_write(const std::string& key, const value_view& value);
  kvclt::sequence start_update(const std::string& key, const value_view& delta, std::uint64_t function);
  /// Blocks: until the request is answered. False: a key to read does not exist. Throws: the error of the request.
  bool finish(kvclt::sequence number) { return failures_.finish(number); }

  // The same once others are answered (parasrv_following.cpp).
  async_functor_type update_after(const after& others, const std::string& key, const value_view& delta,
                                  std::uint64_t function);
  async_functor_type write_after(const after& others, const std::string& key, const value_view& value);
  async_functor_type read_after(const after& others, const std::string& key, value_sink to);
  [[nodiscard]] async_result result_of(kvclt::sequence number) const { return {self_, number}; }
  /// The result of several requests: `other` waits for them and says how they ended.
  [[nodiscard]] async_result result_of(std::future<bool> other,
                                       std::shared_ptr<const std::vector<kvclt::sequence>> requests) const {
    return {self_, std::move(other), std::move(requests)};
  }
  /// The result of the requests that make up one update.
  [[nodiscard]] async_result result_of(std::shared_ptr<shared_update> u) { return result_of(std::move(u), nullptr); }
  /// Empty once this parasrv is destroyed.
  [[nodiscard]] std::weak_ptr<parasrv*> self() const noexcept { return self_; }

  // ---- waiting points

  /// Runs ready callbacks and never blocks. Returns: the number of replies.
  std::size_t poll();
  /// Flushes combined updates, waits for requests in flight and runs the callbacks that become ready. Throws the first
  /// failure of a request whose future was not asked; the other earlier failures are cleared with it.
  void flush();
  /// Returns: whether this worker is to stop here for a checkpoint.
  bool commit();

  // ---- internal

  void set_combining(bool on) { combined_.set(on); }
  /// On: under SSP the shards push changes of the cached keys when the clock ticks.
  void set_push(bool on);
  /// Keys to be pushed from now on. Throws: key_error.
  void subscribe(const std::vector<std::string>& keys);
  /// Begins a read of more than one key: flushes combined updates, and returns the call with the clock that it carries.
  /// Blocks: until the rule of paralg.hpp allows it.
  kvclt::call begin_read(const consistency& c, net::verb what);

 private:
  /// A request that waits for others.
  struct following_request : shared_update {
    std::vector<after::request> others;
    std::function<kvclt::sequence()> send;
    bool reads = false;
    std::string broken{};  // why it is not sent
  };

  void finish_last();
  void begin_model(consistency_model model);
  /// Sends an update and returns. `value` is sent; `delta` is applied to a cached copy.
  kvclt::sequence send_update(const kvclt::call& c, const std::string& key, const value_view& value,
                              const value_view& delta);
  /// `may_miss`: a missing key is not a failure.
  void receive_read(const kv_result& r, value_sink to, const std::string* key, bool may_miss);
  void run_ready();

  async_result result_of(std::shared_ptr<shared_update> u, const bool* waits);

  // parasrv_following.cpp
  async_functor_type follow(const after& others, following_request r);
  [[nodiscard]] bool is_answered(const std::vector<kvclt::sequence>* several) const;
  [[nodiscard]] bool is_answered(const after::request& r) const;
  void send_following();
  void fail_following(following_request& r);
  [[nodiscard]] const following_request* find_following(const std::vector<kvclt::sequence>* sent) const;
  [[nodiscard]] kvclt::sequence first_unanswered(const following_request& r) const;
  bool finish_following(const std::shared_ptr<following_request>& r);

  std::shared_ptr<session> job_;
  std::unique_ptr<server_group> client_;
  worker_clock clock_;
  server_functions functions_;
  request_failures failures_;
  worker_cache cache_;
  combined_updates combined_;
  parasrv_multi many_;
  std::vector<std::shared_ptr<following_request>> following_;
  bool sends_following_ = false;
  std::deque<std::function<void()>> ready_;                            // callbacks, to be run at the next waiting point
  std::shared_ptr<parasrv*> self_ = std::make_shared<parasrv*>(this);  // futures check whether it still exists
};

}  // namespace paracel
