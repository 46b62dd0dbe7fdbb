// SPDX-License-Identifier: BSD-3-Clause
//
// The scheduler's part of checkpoints: which workers have stopped for one, what the servers have written, the manifest;
// and what the servers must read before the first worker of a resumed job is admitted. No socket; disk access has its
// own thread, because a scheduler that blocks on it answers no heartbeats.
//
//   idle --first worker stops at c--> gathering --all arrived--> saving --all shards--> finishing --manifest--> idle
//     ^                                   |                          |                      |
//     +--- "checkpoint failed: why" ------+--------------------------+----------------------+   the workers resume
//
// Partitions that move because of the load cost no checkpoint: none begins to move while one is in progress, and
// nothing is saved before those that are moving have arrived.
//
// Bodies are JSON. A worker's `checkpoint` is {"role":"worker","rank","clock"} with "file" (as in
// checkpoint_service.hpp) or "error"; parked. The reply is {"ok":bool,"why"}. A launcher's is {"role":"launcher"}: it
// requests a checkpoint as soon as possible; answered at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/membership.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "server/request/completion.hpp"
#include "storage/checkpoint_store.hpp"
#include "storage/file_system.hpp"

namespace paracel::srv {

struct checkpoint_options {
  checkpoint_plan plan;
  std::uint32_t keep = 3;    ///< how many valid checkpoints are kept
  std::string program;       ///< for the manifest
  std::uint64_t config = 0;  ///< likewise: hash of the config file
  std::string settings;      ///< likewise: all that it consists of
  /// How long after the first worker the last one may reach the clock of a checkpoint; then it is abandoned, and those
  /// that have arrived continue.
  std::chrono::milliseconds gather_limit{300'000};
  storage::file_system* disk = nullptr;  ///< null: the file system
  bool own_thread = true;                ///< false: disk access runs on the caller's thread, for a simulation
};

/// Thread-safety: owned by the thread of its completions.
class checkpoint_coordinator {
 public:
  using time_point = net::clock_source::time_point;
  using event_sink = std::function<void(std::string_view json, bool droppable)>;
  /// Sends a request to a thread of a server; its reply is passed to `on_reply` with the number in the header
  /// (`sequence`).
  using send_request = std::function<void(const std::string& address, net::request_header h, std::string_view body)>;

  checkpoint_coordinator(checkpoint_options options, std::uint64_t job, std::uint32_t workers, event_sink events,
                         send_request send);

  /// Where checkpoints are written and what the job resumes from: for the membership.
  [[nodiscard]] const checkpoint_plan& plan() const noexcept { return options_.plan; }

  /// A `checkpoint` request. `members`: the current servers.
  void handle(const net::request_view& in, completion done, const membership& members, time_point now);
  /// Asks the clock for a stop as soon as possible.
  void ask(const membership& members);
  /// This worker is not waited for any more.
  void worker_left(std::uint32_t rank, const membership& members);
  /// Another process replaces this worker, and starts after this clock: it will not stop there.
  void worker_passed(std::uint32_t rank, std::uint32_t clock);
  /// A server was lost or has joined: a checkpoint in progress is abandoned.
  void servers_changed(const std::string& why);
  /// Workers have stopped for a checkpoint, or it is being written.
  [[nodiscard]] bool in_progress() const noexcept { return phase_ != phase::idle; }
  /// A reply to a request sent from here. False: it is not to one of ours.
  bool on_reply(std::uint64_t number, const net::reply_view& reply, time_point now);
  void tick(const membership& members, time_point now);
  /// The scheduler was suspended for this long: the deadline of workers is extended by it.
  void was_away(time_point::duration missed) noexcept { since_ += missed; }
  /// The job ends. Everything that waits is answered with this.
  void fail_all(net::status why, std::string_view text);

  /// Makes the servers read what the job resumes from.
  void restore(const membership& members, time_point now);
  /// True when nothing was to be restored, or all of it was.
  [[nodiscard]] bool restored() const noexcept { return options_.plan.resume.empty() || restore_ == step::done; }
  [[nodiscard]] bool restoring() const noexcept { return restore_ == step::asked; }
  /// Why the servers failed; empty: they did not, or have not answered yet.
  [[nodiscard]] const std::string& restore_failure() const noexcept { return restore_failure_; }

  /// Of this run, of those that were begun.
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  [[nodiscard]] std::uint64_t abandoned() const noexcept { return abandoned_; }
  /// The clock of the last one that was written.
  [[nodiscard]] std::uint32_t last_written() const noexcept { return last_written_; }

  /// Something needs attention soon.
  [[nodiscard]] bool busy() const noexcept {
    return task_.valid() || std::ranges::any_of(asked_, [](const auto& q) { return q.second.wait <= soon; });
  }

 private:
  // A server gets the membership shortly after the scheduler has sent it.
  static constexpr std::chrono::milliseconds soon{10};

  enum class step : std::uint8_t { none, asked, done };
  enum class phase : std::uint8_t { idle, gathering, saving, finishing };
  struct stopped_worker {
    completion done;
    std::optional<storage::checkpoint_entry> file;
    std::string error;
  };
  enum class purpose : std::uint8_t { save, restore, clock };
  /// A request to a thread of a server. It is retried until it is answered: a broken connection may have lost it,
  /// or its reply. Servers execute it once (checkpoint_service.hpp).
  struct question {
    purpose what;
    std::string address;
    net::request_header header;
    std::string body;
    time_point again;
    std::chrono::milliseconds wait;
  };
  /// The result of the disk thread: why it failed, and what to report.
  struct outcome {
    std::string why;
    std::uint64_t bytes = 0;
  };

  void stop(std::uint32_t rank, std::uint32_t clock, stopped_worker worker, const membership& members, time_point now);
  void check_all_stopped(const membership& members);
  void save(const membership& members);
  void finish();
  void close(const std::string& why, std::uint64_t bytes);
  void later(std::function<outcome()> work);
  void take_result();
  void on_saved(const net::reply_view& reply);
  void on_restored(question q, const net::reply_view& reply);
  void on_clock(question q, const net::reply_view& reply);
  void put(purpose what, const std::string& address, net::request_header h, std::string body);
  void put_again(question& q, const membership& members);
  void put_soon(question q);
  [[nodiscard]] bool waits_for(purpose what) const noexcept;
  void forget(purpose what);
  [[nodiscard]] std::string folder_of(std::uint32_t clock) const;
  void say(const std::string& kind, std::uint32_t clock, const std::string& why, std::uint64_t bytes);

  checkpoint_options options_;
  std::uint64_t job_;
  std::uint32_t workers_;
  event_sink events_;
  send_request send_;
  storage::posix_file_system file_system_;
  storage::file_system* disk_;

  phase phase_ = phase::idle;
  std::uint32_t clock_ = 0;            // of the checkpoint in progress
  std::optional<std::uint32_t> last_;  // of the last one that was made or abandoned
  std::uint64_t written_ = 0;
  std::uint64_t abandoned_ = 0;
  std::uint32_t last_written_ = 0;
  time_point since_{};
  time_point now_{};
  std::map<std::uint32_t, stopped_worker> stopped_;  // by rank
  std::set<std::uint32_t> in_;                       // ranks that have not left
  std::map<std::uint32_t, std::uint32_t> passed_;    // rank that was replaced -> clock at which it resumed
  std::string failure_;                              // of the one in progress
  storage::checkpoint_manifest manifest_;
  std::set<storage::checkpoint_function> functions_;

  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, question> asked_;  // by number: unanswered requests
  step restore_ = step::none;
  std::string restore_failure_;

  std::shared_ptr<std::map<std::uint32_t, bool>> known_ = std::make_shared<std::map<std::uint32_t, bool>>();
  std::future<outcome> task_;
  bool pruning_ = false;  // task_ is only pruning
};

}  // namespace paracel::srv
