// SPDX-License-Identifier: BSD-3-Clause
//
// A client that sends requests and never reads must not make the process grow. The transport measures what is queued
// for a connection (net/send_queue_meter.hpp); this file decides what follows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "net/protocol.hpp"

namespace paracel::srv {

/// Beyond `limit` bytes of unread replies on one connection, further requests on it are refused with `too_large`, so
/// that a client that is only slow is told why. Refusals need memory too: when a client's unread refusals reach
/// the limit themselves, its requests are silently dropped. Once it has read, it is served again.
///
/// Thread-safety: any thread. Cost: none as long as no connection is over the limit.
class slow_consumer_guard {
 public:
  static constexpr std::size_t least_limit = std::size_t{4} << 20;
  static constexpr const char* text = "too many replies wait to be read by this client";

  /// `log`: receives a line the first time that a client is refused.
  explicit slow_consumer_guard(std::size_t limit, std::function<void(const std::string&)> log = {})
      : limit_(std::max(limit, least_limit)), log_(std::move(log)) {}
  void log_to(std::function<void(const std::string&)> log) { log_ = std::move(log); }

  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  [[nodiscard]] bool is_over(std::uint64_t unread_bytes) const noexcept { return unread_bytes > limit_; }

  /// Judges a request of a connection over the limit. True: answer it with `too_large` and `text`;
  /// false: not at all.
  bool answers(const net::request_header& h, std::uint64_t unread_bytes) {
    const bool answer = record(h, unread_bytes);
    (answer ? refused_ : dropped_).fetch_add(1, std::memory_order_relaxed);
    return answer;
  }

  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct client {
    std::uint64_t unread = 0;    // at its last refusal
    std::uint64_t refusals = 0;  // since it last read
  };

  bool record(const net::request_header& h, std::uint64_t unread_bytes) {
    const std::lock_guard lock(mutex_);
    const auto at = clients_.find(h.client);
    // A client that uses a new id for each request must fill neither the log nor memory.
    if (at == clients_.end() && clients_.size() >= most_clients) return unread_bytes / 2 <= limit_;
    auto& c = at == clients_.end() ? clients_[h.client] : at->second;
    if (at == clients_.end() && log_) {
      log_("client " + std::to_string(h.client) + " of rank " + std::to_string(h.rank) + " has not read " +
           std::to_string(unread_bytes >> 20U) + " MiB of replies: its requests are refused until it does");
    }
    if (unread_bytes < c.unread) c.refusals = 0;
    c.unread = unread_bytes;
    return ++c.refusals * refusal_bytes <= limit_;
  }

  static constexpr std::size_t most_clients = 1000;
  static constexpr std::size_t refusal_bytes = 512;  // about 280 were measured
  const std::size_t limit_;
  std::function<void(const std::string&)> log_;
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, client> clients_;  // that were over the limit
};

}  // namespace paracel::srv
