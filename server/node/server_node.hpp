// SPDX-License-Identifier: BSD-3-Clause
//
// Threads and ports around a server: one thread per shard, one for the clock, one for control, each with its own
// port. server/README.md has the table of thread ownership.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/membership.hpp"
#include "net/clock_source.hpp"
#include "net/transport.hpp"
#include "server/node/server.hpp"
#include "server/node/server_loop.hpp"

namespace paracel::srv {

class port_sink;

struct node_options {
  server_options server;
  /// `ipc:///folder` (sockets <folder>/<slot>_<thread>), `tcp://host:*`, or `inproc://prefix`.
  std::string bind = "inproc://server";
  /// The shard threads share one connection to each client, instead of one each: net::transport::open_group.
  bool shares_connections = false;
  function_timeouts function_timeout{};               ///< a user function that runs longer is named in the log
  std::chrono::milliseconds heartbeat_interval{500};  ///< of the pings through each shard's own queue
  bool owns_process = false;           ///< nothing else runs in it: what the allocator keeps is returned to the system
  request_handler* handler = nullptr;  ///< handles the shards' requests instead of the server; may forward
  std::function<void()> on_stop;       ///< on a `stop` request or a thread failure; runs on one of the node's threads
  std::function<void(const std::string&)> log;  ///< a line of text; without it: stderr
};

/// A running server.
///
/// Thread-safety: any thread, unless stated otherwise.
/// Lifetime: the transport, and a given handler, must outlive the node.
class server_node {
 public:
  /// Returns when every port is bound.
  /// Throws: network_error when an address cannot be bound, usage_error for an option that is out of range.
  server_node(net::transport& transport, node_options options);
  /// Stops and joins. Blocks: until a running user function returns.
  ~server_node();
  server_node(const server_node&) = delete;
  server_node& operator=(const server_node&) = delete;

  /// Ends the threads; parked waits are answered with `job_ended`.
  /// Blocks: at most `limit`. Returns: true when all threads have exited; one inside a user function may not.
  bool stop(std::chrono::milliseconds limit = std::chrono::milliseconds(2000)) noexcept;

  /// This server's entry, as sent to the scheduler. Thread-safety: const-concurrent.
  [[nodiscard]] const server_entry& addresses() const noexcept { return self_; }
  /// The ring: which partitions are ours, and where a proxied request is sent.
  /// Throws: error when this slot is not a member; the old membership stays.
  void set_membership(const membership& members);
  /// The epoch of which all replicas are complete, the clock's too; 0 if there are none. Thread-safety: any thread.
  [[nodiscard]] std::uint32_t synced() const noexcept;
  /// Nothing is answered at or after this time, until it is extended. Without a call: no limit.
  /// Thread-safety: any thread.
  void set_lease_end(net::clock_source::time_point end) noexcept {
    auto now = lease_end_.load(std::memory_order_relaxed);
    while (now != no_lease && !lease_end_.compare_exchange_weak(now, end.time_since_epoch().count())) {
    }
  }
  /// Stops answering: others may have taken over. Permanent, even when a heartbeat is answered late.
  /// Thread-safety: any thread.
  void end_lease() noexcept { lease_end_.store(no_lease); }

  struct long_run {
    unsigned shard;
    std::string function;
    std::chrono::milliseconds time;
  };
  /// User functions that have been running for longer than the limit. Units: times are accurate to one heartbeat
  /// interval.
  [[nodiscard]] std::vector<long_run> long_runs() const;
  /// Asks the thread with the longest-running user function what it is executing (last_words.hpp). False: there is
  /// none.
  bool ask_longest_run();
  /// When the thread of this shard last answered the control thread; the start of the node if it never did.
  [[nodiscard]] std::chrono::steady_clock::time_point shard_seen(unsigned shard) const noexcept;
  /// Why a thread of the node exited by itself; empty when none did.
  [[nodiscard]] std::string failure() const;
  [[nodiscard]] server& object() noexcept { return server_; }

 private:
  class control;
  using steady = std::chrono::steady_clock;

  [[nodiscard]] std::string address_for(const std::string& thread_name) const;
  /// `bound`: none: the thread opens a port of its own.
  std::string start(const std::string& name, void (server_node::*loop)(net::port&, unsigned), unsigned index,
                    std::unique_ptr<net::port> bound = nullptr, std::string address = {});
  void run(server_loop& loop);
  void run_shard(net::port& mine, unsigned index);
  void run_clock(net::port& mine, unsigned);
  void run_control(net::port& mine, unsigned);
  void say(const std::string& text) const;
  void fail(const std::string& thread, const std::string& why) noexcept;
  void join() noexcept;
  [[nodiscard]] bool stopping() const noexcept { return stop_.load(std::memory_order_acquire); }

  net::transport& transport_;
  node_options options_;
  server server_;
  net::boot_time_source time_;
  server_entry self_;
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> alive_{0};
  std::unique_ptr<std::atomic<std::int64_t>[]> seen_;     // by shard, of steady_clock
  std::unique_ptr<std::atomic<std::uint32_t>[]> synced_;  // by shard, and of the clock
  static constexpr auto no_lease = std::numeric_limits<std::int64_t>::min();
  std::atomic<std::int64_t> lease_end_{std::numeric_limits<std::int64_t>::max()};

  mutable std::mutex mutex_;  // the three below
  std::shared_ptr<const membership> members_;
  std::vector<long_run> long_runs_;
  std::string failure_;
  std::mutex join_mutex_;  // threads_, once they have been started; those of the shards come first
  std::vector<std::thread> threads_;
};

}  // namespace paracel::srv
