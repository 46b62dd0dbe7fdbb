// SPDX-License-Identifier: BSD-3-Clause
//
// The server as an object: shards, clock and plug-ins, without a thread, a socket or a global. Several can exist in one
// process; server_node adds threads and ports.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/membership.hpp"
#include "core/shared_buffer.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "server/node/checkpoint_service.hpp"
#include "server/node/load_windows.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/replication/replication_chain.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"
#include "server/request/server_load.hpp"
#include "server/request/slow_consumer_guard.hpp"
#include "server/request/verb_rules.hpp"
#include "server/shard/clock_service.hpp"
#include "server/shard/shard.hpp"
#include "storage/file_system.hpp"

namespace paracel::srv {

/// Handles the requests of shard threads. A program that embeds a server may supply its own, in front of the
/// server's or instead of it.
class request_handler {
 public:
  virtual ~request_handler() = default;
  /// Called on the shard's thread alone. Answers `done` exactly once, now or later on the same thread; the request is
  /// valid during the call only.
  virtual void handle(unsigned shard, const net::request_view& request, shared_buffer tail, completion done) = 0;
  /// `requests` come next, in this order: memory that they need may be prefetched while the first is handled. Called
  /// before every batch, even of one. Nothing is answered here.
  virtual void expect(unsigned shard, std::span<const net::request_view> requests) {
    static_cast<void>(shard);
    static_cast<void>(requests);
  }
  /// The thread of this shard exits, and with it the way to its clients: what is parked must be answered now.
  virtual void closing(unsigned shard) { static_cast<void>(shard); }
};

struct server_options {
  std::uint32_t slot = 0;
  std::uint32_t threads = 1;
  double weight = 1;
  std::uint64_t incarnation = 0;  ///< 0: derived from the time and the process
  std::uint64_t job = 0;          ///< 0: requests of any job are accepted
  std::uint32_t workers = 1;      ///< 0: known with the membership; clock requests are held until then
  std::vector<std::string> plugin_folders{};
  sandbox_options sandbox{};  ///< of user functions; without a program they run in the server
  std::size_t max_value_bytes = std::size_t{256} << 20;
  std::size_t max_set_bytes = std::size_t{256} << 20;  ///< of the key sets that a shard keeps, and of lists of rows
  std::size_t max_message_bytes = std::size_t{1} << 30;
  std::size_t max_memory_bytes = 0;                       ///< of all shards, equal shares; 0: no limit
  std::size_t max_unread_bytes = std::size_t{1} << 30;    ///< of replies on one connection, see slow_consumer_guard
  std::size_t max_parked_bytes = std::size_t{256} << 20;  ///< of requests that wait for a membership, in all threads
  std::chrono::milliseconds resend_after = net::late;     ///< replication_chain_options::resend_after
  bool times = false;                                     ///< requests are timed, for `metrics`
};

/// Thread-safety: `handle(i, ...)` by the thread of shard i, `clock()` by the clock thread, the rest by any thread.
class server final : public request_handler {
 public:
  /// Throws: usage_error for an option that is out of range.
  explicit server(server_options options);

  /// Answers synchronously. Never throws.
  void handle(unsigned shard, const net::request_view& request, shared_buffer tail, completion done) override;
  void expect(unsigned shard, std::span<const net::request_view> requests) override {
    shards_[shard]->expect(requests);
  }
  /// Answers what is parked in a shard with `job_ended`.
  void closing(unsigned shard) override;
  /// Where checkpoints are written and read instead of the file system. Call it before the first request.
  void use_disk(storage::file_system& instead) noexcept;
  /// Ticks and waits; requests of another job, or for a clock that is another server's, are rejected.
  /// `keeps`: whether the clock is ours, if the caller knows; otherwise the newest membership decides.
  void handle_clock(const net::request_view& request, completion done, clock_service::time_point now,
                    std::optional<bool> keeps = std::nullopt);
  /// Periodic work of the clock thread. Returns: when to call again.
  std::chrono::milliseconds tend_clock(clock_service::time_point now);
  [[nodiscard]] clock_service& clock() noexcept { return clock_; }
  [[nodiscard]] slow_consumer_guard& unread() noexcept { return unread_; }
  /// A connection was dropped because of what it sent. Thread-safety: any thread.
  void count_dropped_connection() noexcept { connections_dropped_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t connections_dropped() const noexcept {
    return connections_dropped_.load(std::memory_order_relaxed);
  }
  /// Memory held by all threads together. Thread-safety: any thread.
  [[nodiscard]] server_budgets& budgets() noexcept { return budgets_; }

  /// The completion of a request, with this server's incarnation and epoch; in a job with replicas the request's epoch,
  /// by which its sender tells the reply to an earlier attempt from that to the current one.
  [[nodiscard]] completion completion_for(reply_sink& sink, const net::peer& to,
                                          const net::request_header& h) const noexcept {
    const bool has_replicas = has_replicas_.load(std::memory_order_relaxed);
    return {sink, to, h.what, h.sequence, options_.incarnation, has_replicas ? h.epoch : epoch()};
  }

  /// From now on only the partitions that the ring assigns to this slot are served. When partitions have replicas, or
  /// get some while a server joins, the threads use `replicas` and each adopts it in its own time. Throws: error when
  /// this slot is not a member; the old ring stays.
  void set_membership(const membership& members);
  [[nodiscard]] std::uint32_t epoch() const noexcept;
  /// Whether a request from a server's thread is from one of the newest membership, or from this one, and addressed to
  /// us.
  [[nodiscard]] bool is_of_peer(const net::request_header& h) const noexcept;
  /// As refused_at, of this server.
  [[nodiscard]] std::optional<refusal_at_door> refused(place at, const net::request_header& h) const {
    return refused_at(at, h, options_.job, options_.incarnation);
  }
  /// The newest membership of a job whose partitions have replicas; null otherwise. Thread-safety: any thread.
  [[nodiscard]] std::shared_ptr<const replica_view> replicas() const;
  /// Its epoch, or 0. Cost: one load.
  [[nodiscard]] std::uint32_t replicas_epoch() const noexcept {
    return replicas_epoch_.load(std::memory_order_acquire);
  }
  /// The shard uses this membership from now on. Thread-safety: by the thread of that shard.
  void adopt(unsigned shard, const replica_view& view) noexcept {
    shard_owned_[shard].store(&view.owned, std::memory_order_release);
  }

  /// The replication chain of a shard's partitions, or, with the number after the last shard's, of the clock, for as
  /// long as its thread has this port. `serve` handles requests served here. Thread-safety: each by its thread.
  /// Lifetime: the port until `end_replication`.
  /// `log`: replication_chain_options::log.
  replication_chain& begin_replication(unsigned thread, net::port& port, replication_chain::serve_function serve,
                                       std::function<void(const std::string&)> log);
  void end_replication(unsigned thread) noexcept { chains_[thread].reset(); }

  /// A shard itself. Thread-safety: owned by the thread of that shard.
  [[nodiscard]] shard& at(unsigned shard) noexcept { return *shards_[shard]; }
  [[nodiscard]] plugin_registry& plugins() noexcept { return plugins_; }
  /// Adds this folder to those searched for plug-ins.
  void allow_plugin_folder(const std::string& folder) { plugins_.allow_folder(folder); }
  /// Requests handled by the shards, except watchdog pings.
  [[nodiscard]] std::uint64_t requests_served() const noexcept;
  /// For each function that has stored NaN: how many of the updates that were checked, and one key. Thread-safety: any
  /// thread.
  [[nodiscard]] std::map<std::string, nan_watch::found> stored_nans() const;
  /// Bytes of keys, rows and staged updates. Thread-safety: any thread.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  [[nodiscard]] const server_options& options() const noexcept { return options_; }
  [[nodiscard]] unsigned threads() const noexcept { return static_cast<unsigned>(shards_.size()); }
  [[nodiscard]] running_function busy(unsigned shard) const noexcept { return shards_[shard]->busy(); }
  /// Counters of the server and of each shard, as JSON text.
  [[nodiscard]] std::string stats_json() const;
  /// For heartbeats: {"seconds" since it began, "requests","bytes_in","bytes_out","keys"} of all shards, the "cpu"
  /// seconds of this process, and of each of the first 64 shards "shards":[[requests,bytes_in,bytes_out,keys]..];
  /// "partitions":[[partition, keys, bytes]..], the few that were asked for most keys and rows.
  /// Thread-safety: any thread.
  [[nodiscard]] nlohmann::json usage() const;
  /// Likewise: the load of the last seconds. Thread-safety: any thread.
  [[nodiscard]] server_load load(net::clock_source::time_point now);
  /// For heartbeats of a job whose metrics are exported, what `usage` lacks:
  ///
  ///   {"times":{verb:[nanoseconds,[i,n],..]..}, n requests in bucket i (verb_times.hpp); without server_options::times
  ///   {}
  ///    "hot":[[key,requests]..], the hottest few
  ///    "rows","staged","failures","nan" updates,"dropped" connections,"max_memory_bytes", 0: no limit,
  ///    "sandboxes","sandboxes_lost"}
  ///
  /// Thread-safety: any thread.
  [[nodiscard]] nlohmann::json metrics() const;

 private:
  template <class F>
  void each_budget(const F& f) const;
  [[nodiscard]] std::vector<hot_keys::entry> hottest(std::size_t most) const;
  struct asked_partition {
    std::uint16_t number = 0;
    std::uint64_t keys = 0;  ///< and rows that requests have named, an estimate
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::vector<asked_partition> busiest(std::size_t most) const;
  [[nodiscard]] partition_load::counted counted_at(std::uint16_t partition) const noexcept {
    return shards_[partition % shards_.size()]->load().at(partition);
  }

  server_options options_;
  server_budgets budgets_;
  plugin_registry plugins_;
  std::atomic<const ownership*> owned_{nullptr};
  std::unique_ptr<std::atomic<const ownership*>[]> shard_owned_;
  mutable std::mutex memberships_mutex_;
  std::vector<std::shared_ptr<const replica_view>> views_;  // those in use, and the newest
  std::atomic<std::uint32_t> replicas_epoch_{0};
  std::vector<std::unique_ptr<const ownership>> memberships_;  // all of them: a shard may still use an old one
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<shard>> shards_;
  clock_service clock_;
  std::vector<std::unique_ptr<replication_chain>> chains_;  // of the shards, and of the clock
  std::atomic<std::uint32_t> workers_;
  std::atomic<std::uint32_t> first_clock_{0};       // written before workers_
  std::atomic<std::uint32_t> checkpoint_every_{0};  // likewise
  std::atomic<bool> keeps_clock_{true};
  std::atomic<bool> has_replicas_{false};
  std::atomic<std::uint64_t> connections_dropped_{0};
  slow_consumer_guard unread_;
  std::mutex loads_mutex_;
  load_windows loads_;
  storage::posix_file_system file_system_;
  std::vector<checkpoint_service> checkpoints_;  // of each shard
};

}  // namespace paracel::srv
