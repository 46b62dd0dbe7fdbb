// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ssp_clock.hpp"
#include "net/protocol.hpp"
#include "server/completion.hpp"

namespace paracel::srv {

/// The clock of the job as requests see it: ticks are applied, waits are parked until the slowest worker has come far
/// enough. Nobody polls.
///
///   clock_tick  rank, clock = iterations finished       answered at once; clock = no_clock: the worker leaves
///   subscribe   somebody has subscribed at the shards    answered at once
///   clock_wait  clock = what the slowest must have       answered when it has, or at the deadline
///
/// Every reply carries the slowest worker's clock.
/// Thread-safety: owned by the clock thread.
class clock_service {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// 0 workers: their number is not known yet; requests are held until `begin`.
  explicit clock_service(std::uint32_t workers) : clock_(workers), begun_(workers != 0) {}

  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// The number of workers is known now. Handles what was held. Throws: error when there are too many.
  void begin(std::uint32_t workers, time_point now);

  /// Answers `done` now or later, exactly once. Cost: O(log parked) for a wait, O(log workers) for a tick, O(1) more for
  /// each wait that it ends.
  void handle(const net::request_view& request, completion done, time_point now);
  /// Answers what is past its deadline. Cost: O(1) unless a deadline has passed, then O(parked).
  void expire(time_point now);
  /// Answers everything that is parked, and from then on every request, with this.
  void fail_all(net::status why, std::string_view text);

  [[nodiscard]] std::size_t parked() const noexcept { return waits_.size() + held_.size(); }
  [[nodiscard]] std::uint32_t slowest() const noexcept { return clock_.slowest(); }
  /// Whether somebody has said that it subscribes to keys: then the shards are to be told when the clock moves.
  [[nodiscard]] bool is_watched() const noexcept { return watched_; }

 private:
  struct wait {
    completion done;
    time_point deadline;
  };
  void answer(completion& done) const;
  void wake();

  ssp_clock clock_;
  bool begun_;
  bool watched_ = false;
  std::vector<std::pair<net::request_header, completion>> held_;
  std::multimap<std::uint32_t, wait> waits_;  // by the minimum they need
  time_point next_deadline_ = time_point::max();
  net::status ended_ = net::status::ok;
  std::string why_ended_;
};

}  // namespace paracel::srv
