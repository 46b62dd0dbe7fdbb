// SPDX-License-Identifier: BSD-3-Clause
//
// A client that asks and never reads must not make the process grow. What waits for a connection is measured by the
// transport (net/unread_replies.hpp); here is what follows from it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "net/protocol.hpp"

namespace paracel::srv {

/// Beyond `limit` bytes of unread replies on one connection, further requests on it are refused with `too_large`, so that a
/// client that is only slow learns why; beyond twice the limit they are dropped without a word, since refusals need memory
/// too. Once the client has read, it is served again.
///
/// Thread-safety: any thread. Cost: none as long as nobody is over the limit.
class unread_guard {
 public:
  static constexpr std::size_t least_limit = std::size_t{4} << 20;
  static constexpr const char* text = "too many replies wait to be read by this client";

  /// `log`: gets a line the first time that a client is refused.
  explicit unread_guard(std::size_t limit, std::function<void(const std::string&)> log = {})
      : limit_(std::max(limit, least_limit)), log_(std::move(log)) {}
  void log_to(std::function<void(const std::string&)> log) { log_ = std::move(log); }

  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  [[nodiscard]] bool is_over(std::uint64_t unread_bytes) const noexcept { return unread_bytes > limit_; }

  /// Judges a request of a connection that is over the limit. True: it is to be answered with `too_large` and `text`; false:
  /// not at all.
  bool answers(const net::request_header& h, std::uint64_t unread_bytes) {
    name(h, unread_bytes);
    const bool answer = unread_bytes / 2 <= limit_;
    (answer ? refused_ : dropped_).fetch_add(1, std::memory_order_relaxed);
    return answer;
  }

  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  void name(const net::request_header& h, std::uint64_t unread_bytes) {
    if (!log_) return;
    {
      const std::lock_guard lock(mutex_);
      // Whoever makes up a new name for each request does not fill the log.
      if (named_.size() >= most_named || !named_.insert(h.client).second) return;
    }
    log_("client " + std::to_string(h.client) + " of rank " + std::to_string(h.rank) + " has not read " +
         std::to_string(unread_bytes >> 20U) + " MiB of replies: its requests are refused until it does");
  }

  static constexpr std::size_t most_named = 1000;
  const std::size_t limit_;
  std::function<void(const std::string&)> log_;
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::set<std::uint64_t> named_;
};

}  // namespace paracel::srv
