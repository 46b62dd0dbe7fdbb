// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/clock_source.hpp"
#include "net/transport.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

struct scheduler_node_options {
  scheduler_options job;
  std::string bind = "inproc://scheduler";
  scheduler::event_sink events;  ///< runs on the node's thread; may be empty
  /// Runs on the node's thread when the job has ended and every node has been told; it must not destroy the node.
  std::function<void()> on_over;
};

/// A running scheduler: one thread with one port. Its first event is {"event":"ready","address"}. What fails there
/// outside of a request ends the job with status 13 and the reason as its cause.
///
/// Lifetime: the transport and the time source must outlive the node.
class scheduler_node {
 public:
  /// Returns when the port is bound.
  /// Throws: network_error with the address when it cannot be bound.
  scheduler_node(net::transport& transport, scheduler_node_options options, const net::clock_source* time = nullptr);
  /// Ends the thread; pending requests are answered job_ended. Blocks: at most 50 ms, 1 ms after `on_over`.
  ~scheduler_node();
  scheduler_node(const scheduler_node&) = delete;
  scheduler_node& operator=(const scheduler_node&) = delete;

  /// Its address.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// Requests the end of the job with this status and cause, as a node's `abort` would; the thread continues until
  /// every node has been told. No-op when the job has already ended. Call it once. Thread-safety: any thread.
  void abort(int status, std::string cause);
  /// Requests a checkpoint as soon as possible. Thread-safety: any thread.
  void ask_for_checkpoint() noexcept { checkpoint_asked_.store(true, std::memory_order_release); }
  /// scheduler::metrics(), by the node's thread. Thread-safety: any thread. Blocks: about 50 ms, at most `limit`; then
  /// those of the last call are returned.
  [[nodiscard]] std::vector<metric_family> metrics(std::chrono::milliseconds limit = std::chrono::seconds{2});
  [[nodiscard]] scheduler::phase state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// scheduler::status(). Thread-safety: any thread.
  [[nodiscard]] int status() const noexcept { return status_.load(std::memory_order_acquire); }

 private:
  void run(net::port& mine);
  void end_here(const char* why) noexcept;

  scheduler_node_options options_;
  net::boot_time_source real_time_;
  const net::clock_source& time_;
  std::string address_;
  std::string abort_cause_;  // written before abort_status_
  std::atomic<int> abort_status_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> checkpoint_asked_{false};
  std::atomic<scheduler::phase> state_{scheduler::phase::joining};
  std::atomic<int> status_{0};
  std::atomic<bool> metrics_asked_{false};
  std::mutex metrics_mutex_;
  std::condition_variable metrics_come_;
  std::uint64_t metrics_number_ = 0;  // how many times they were taken
  std::vector<metric_family> metrics_;
  std::thread thread_;
};

}  // namespace paracel::srv
