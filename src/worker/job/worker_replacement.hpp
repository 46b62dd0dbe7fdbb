// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "client/server_group.hpp"
#include "net/mutex.hpp"
#include "worker/job/collective_sequence.hpp"
#include "worker/job/recovery_file.hpp"
#include "worker/job/worker_checkpoint.hpp"

namespace paracel {

/// What a worker saves so that another process can replace it when it dies (doc/workers.md), and what such a process
/// repeats. Without a folder nothing is saved: the worker is not replaced.
///
/// Thread-safety: owned by the thread that runs the algorithm, except `report`.
class worker_replacement {
 public:
  struct options {
    std::string folder{};        ///< of recovery_file; empty: none
    bool outlives_host = false;  ///< another host may be where the replacement runs
    std::uint64_t job = 0;
    std::uint32_t rank = 0;
    std::function<void(const std::string&)> warn{};
    std::function<void(const std::string& cause)> abort{};  ///< ends the job, and throws job_error
  };

  /// Lifetime: `parts` and `clock`, the iterations that this worker has committed, must outlive it.
  worker_replacement(worker_checkpoint& parts, const std::atomic<std::uint32_t>& clock) noexcept
      : parts_(parts), clock_(clock) {}
  /// Returns: the last commit of the previous process of this worker; empty: there was none.
  std::optional<recovery_file::commit> open(options o);

  /// Whether each commit is saved first.
  [[nodiscard]] bool is_on() const noexcept { return file_ != nullptr; }
  /// Part `part` is about to commit an iteration, whose updates are all acknowledged. `loops`: as in
  /// collective_sequence::commit. If its state cannot be saved, warns that it cannot be replaced. Throws: error of the
  /// disk when a replacement could not find out either; the job must then not continue.
  void save(std::size_t part, std::size_t loops);
  /// A client of this process is known to a replacement before it sends anything.
  void add_client(std::uint64_t id);
  /// This worker cannot be replaced from now on, unless that was known already.
  void forbid(const std::string& why);

  /// The number of the current collective.
  std::uint64_t next_collective();
  /// How many messages have been sent to, or received from, a worker since the last commit.
  std::uint64_t next_message(std::uint32_t rank, bool is_sent);
  /// A paralg asks for the first iteration of its loop.
  void loop_begins(std::size_t part);
  /// The same for each of its loops, when it has several. Returns: `loops` for `save`.
  std::size_t loop_begins_of(std::size_t part);
  /// A paralg is destroyed. If it never asked, it is unknown whether a replacement would repeat what it has done.
  void loop_ends(std::size_t part);

  /// This process replaces another one, which had called this many collectives, and resumes from its last commit.
  void begin_again(std::optional<recovery_file::commit> last, std::uint64_t collectives);
  /// The servers drop what the previous process had sent for the iteration that it did not commit, and reject its later
  /// messages; the clock is told of its last commit, if it has not been.
  void take_over(const std::function<std::unique_ptr<server_group>()>& open_client);
  /// This process replaces another one and repeats what that one has done: at least up to the next collective.
  [[nodiscard]] bool repeats() const noexcept { return collectives_.repeats(); }
  /// The same, but until it calls the first collective that the previous process had not called, where others may be
  /// waiting for it.
  [[nodiscard]] bool takes_over() const noexcept { return is_replacement_ && collectives_.may_repeat(); }
  /// Ends the job if work of the previous process is counted twice, or may be.
  void check_repeatable();

  /// Adds the fields of a heartbeat. Thread-safety: any thread.
  void report(nlohmann::json& body) const;

 private:
  [[nodiscard]] std::uint32_t clock() const noexcept { return clock_.load(std::memory_order_relaxed); }
  void check_caught_up();
  void warn_of_obstacle() const;

  options options_;
  worker_checkpoint& parts_;
  const std::atomic<std::uint32_t>& clock_;
  std::unique_ptr<recovery_file> file_;
  collective_sequence collectives_;
  std::uint32_t messages_clock_ = 0;                                        // the clock of these:
  std::map<std::pair<std::uint32_t, bool>, std::uint64_t> message_counts_;  // by rank, and whether sent
  std::string obstacle_;                                                    // why it cannot be replaced
  std::string unrecorded_;       // why a client of this process is unknown to a replacement
  std::string unsaved_;          // why its last state is
  bool is_replacement_ = false;  // of another process
  std::atomic<bool> caught_up_{false};
  mutable mutex mutex_;
  replay_range reported_ PARACEL_GUARDED_BY(mutex_);  // to the scheduler, which keeps the results of these collectives
};

}  // namespace paracel
