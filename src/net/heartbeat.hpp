// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "net/attention.hpp"
#include "net/clock_source.hpp"
#include "net/mutex.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::net {

inline constexpr std::chrono::milliseconds heartbeat_interval{500};
/// The least time of silence that may be called a loss: one beat may come late.
inline constexpr std::chrono::milliseconds least_heartbeat_limit = 2 * heartbeat_interval;

/// What the scheduler asked for in answer to a heartbeat, or what its silence means.
struct directive {
  instruction what = instruction::go_on;
  int status = 0;  ///< exit status that fits the cause
  std::string cause;
};

/// The directive in a reply of the scheduler; a failure is an abort, with the cause in the body as JSON or as text.
directive directive_of(const reply_view& reply);

/// A silent scheduler is waited for so many times as long as it waits for others itself. Its death is seen at once by
/// its launcher, so this is for one that is paused alone, or on a host that is gone; leases end without it.
inline constexpr int patience_with_scheduler = 3;

struct heartbeat_options {
  std::string scheduler;  ///< address
  std::uint64_t job = 0;
  std::chrono::milliseconds interval = heartbeat_interval;
  std::chrono::milliseconds limit{3000};  ///< a scheduler silent for longer is lost
  /// A beat was answered that had been sent at this time, and the scheduler knows us as who we say we are: until two
  /// seconds after it nobody has been put in our place.
  std::function<void(clock_source::time_point)> on_answer{};
  /// A membership other than the followed one, as JSON. Returns: its epoch.
  std::function<std::uint32_t(std::string_view)> on_membership{};
};

/// What the thread of a heartbeat does, without the thread.
///
/// Thread-safety: none, but for `followed`. Lifetime: port, `followed` and time outlive it.
class heartbeat_driver {
 public:
  using time_point = clock_source::time_point;
  enum class outcome : std::uint8_t { nothing, heard, over };  ///< over: the order to end was obeyed

  /// `followed`: see heartbeat::follow.
  heartbeat_driver(port& to_scheduler, heartbeat_options options, std::function<std::string()> describe,
                   std::function<void(const directive&)> obey, std::atomic<std::uint32_t>& followed,
                   const clock_source& time);
  ~heartbeat_driver();
  heartbeat_driver(const heartbeat_driver&) = delete;
  heartbeat_driver& operator=(const heartbeat_driver&) = delete;

  void beat_if_due();
  /// Nothing is awaited before the next beat.
  [[nodiscard]] bool is_idle() const noexcept;
  [[nodiscard]] time_point next_beat() const noexcept { return next_beat_; }
  void beat_now() { next_beat_ = std::min(next_beat_, time_.now()); }
  /// Takes one answer of the scheduler; judges its silence when there is none. Blocks: at most `timeout`.
  outcome listen(std::chrono::milliseconds timeout);

 private:
  class line;

  void look_up(time_point now);

  heartbeat_options options_;
  std::function<std::string()> describe_;
  std::function<void(const directive&)> obey_;
  std::atomic<std::uint32_t>& followed_;
  const clock_source& time_;
  std::unique_ptr<line> scheduler_;
  time_point last_answer_;
  time_point next_beat_;
  attention<time_point> own_;
};

/// A thread with a port of its own that tells the scheduler that this process lives, and hears of the job's end.
/// Thread-safety: the functions run on the heartbeat's thread. `obey` is called at most once.
class heartbeat {
 public:
  /// `describe` gives the JSON body of each beat.
  heartbeat(transport& over, heartbeat_options options, std::function<std::string()> describe,
            std::function<void(const directive&)> obey);
  /// Stops and joins. Blocks: at most 50 ms, and what `obey` takes.
  ~heartbeat();
  heartbeat(const heartbeat&) = delete;
  heartbeat& operator=(const heartbeat&) = delete;

  /// From now on a request for a membership that is not of this epoch lies at the scheduler, so that a change is here
  /// as soon as it has happened. Thread-safety: any thread.
  void follow(std::uint32_t epoch);

 private:
  void run(port& to_scheduler);

  heartbeat_options options_;
  std::function<std::string()> describe_;
  std::function<void(const directive&)> obey_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> epoch_{0};  // that is followed; 0: none
  mutex mutex_;                          // for wake_: what is waited for is atomic
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace paracel::net
