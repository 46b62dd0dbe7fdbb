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
/// The shortest silence that may count as a loss: one beat may be late.
constexpr std::chrono::milliseconds least_heartbeat_limit(std::chrono::milliseconds interval) { return 2 * interval; }

/// The scheduler's directive in reply to a heartbeat, or the meaning of its silence.
struct directive {
  instruction what = instruction::proceed;
  int status = 0;  ///< exit status that fits the cause
  std::string cause;
};

/// The directive in a reply of the scheduler; a failure is an abort, with the cause in the body as JSON or as text.
directive directive_of(const reply_view& reply);

/// Others wait this many times longer for a silent scheduler than it waits for them. Its launcher detects its death at
/// once, so this only covers a scheduler that alone is suspended, or whose host is lost; leases expire without it.
inline constexpr int patience_with_scheduler = 3;

struct heartbeat_options {
  std::string scheduler;  ///< address
  std::uint64_t job = 0;
  std::chrono::milliseconds interval = heartbeat_interval;
  std::chrono::milliseconds limit{3000};  ///< a scheduler silent for longer is lost
  /// A beat sent at this time was answered, and the scheduler confirmed our identity: no other process replaces us
  /// within two seconds of that time.
  std::function<void(clock_source::time_point)> on_answer{};
  /// A membership other than the followed one, as JSON. Returns: its epoch.
  std::function<std::uint32_t(std::string_view)> on_membership{};
};

/// The work of the heartbeat thread, without the thread.
///
/// When a beat is unanswered for a sixth of the time after which this process would be considered lost, its
/// connection may have fallen silent: the next one uses a new connection. The scheduler may as well be slow, so the old
/// one is kept for its replies, and the time doubles.
///
/// Thread-safety: none, except for `followed`. Lifetime: port, `followed` and time must outlive it.
class heartbeat_driver {
 public:
  using time_point = clock_source::time_point;
  enum class outcome : std::uint8_t { nothing, heard, over };  ///< over: the order to exit was obeyed

  /// `followed`: see heartbeat::follow.
  heartbeat_driver(port& to_scheduler, heartbeat_options options, std::function<std::string()> describe,
                   std::function<void(const directive&)> obey, std::atomic<std::uint32_t>& followed,
                   const clock_source& time);
  ~heartbeat_driver();
  heartbeat_driver(const heartbeat_driver&) = delete;
  heartbeat_driver& operator=(const heartbeat_driver&) = delete;

  void beat_if_due();
  /// Nothing is due before the next beat.
  [[nodiscard]] bool is_idle() const noexcept;
  [[nodiscard]] time_point next_beat() const noexcept { return next_beat_; }
  /// Since the last beat another epoch is to be followed.
  [[nodiscard]] bool follows_another() const noexcept { return followed_.load(std::memory_order_relaxed) != told_; }
  void beat_now() { next_beat_ = std::min(next_beat_, time_.now()); }
  /// Handles one reply of the scheduler; if none arrives, checks whether it has been silent for too long. Blocks: at
  /// most `timeout`.
  outcome listen(std::chrono::milliseconds timeout);

 private:
  class line;

  void look_up(time_point now);

  heartbeat_options options_;
  std::function<std::string()> describe_;
  std::function<void(const directive&)> obey_;
  std::atomic<std::uint32_t>& followed_;
  std::uint32_t told_ = 0;  // the followed epoch at the last beat
  const clock_source& time_;
  std::unique_ptr<line> scheduler_;
  time_point last_answer_;
  time_point next_beat_;
  attention<time_point> own_;
};

/// A thread with its own port that tells the scheduler that this process is alive, and learns of the job's end.
/// Thread-safety: the functions run on the heartbeat's thread. `obey` is called at most once.
class heartbeat {
 public:
  /// `describe` returns the JSON body of each beat.
  heartbeat(transport& over, heartbeat_options options, std::function<std::string()> describe,
            std::function<void(const directive&)> obey);
  /// Stops and joins. Blocks: at most 50 ms, plus the time `obey` takes.
  ~heartbeat();
  heartbeat(const heartbeat&) = delete;
  heartbeat& operator=(const heartbeat&) = delete;

  /// From now on a request for a membership of any other epoch is parked at the scheduler, so that this process is
  /// notified of a change, or of the end of the job, at once. 0: no longer. Thread-safety: any thread.
  void follow(std::uint32_t epoch);

 private:
  void run(port& to_scheduler);

  heartbeat_options options_;
  std::function<std::string()> describe_;
  std::function<void(const directive&)> obey_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> epoch_{0};  // the followed one; 0: none
  mutex mutex_;                          // for wake_: the awaited state is atomic
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace paracel::net
