// SPDX-License-Identifier: BSD-3-Clause
//
// The state of a job: which processes have joined, are alive, or are awaited; why it ended. No socket, no thread; time
// is an argument.
//
//   joining --all joined--> running --all workers left with 0--> done
//      |                      |
//      +------- a loss, an abort, the join deadline -------> aborted     (the first cause stays)
//
// With replicas (`replicas` above 1) a running job survives the loss of servers; server_membership.hpp says of which.
// With `eject_workers` it survives the loss of workers other than 0, which writes the results: collectives continue
// without their contributions. Once a launcher has reported that the process is dead, the scheduler removes the worker
// from the clock (clock_removals.hpp); for a worker that was lost because it was silent, an event requests that the
// launcher end it. With `worker_wait` the others wait at most that long for a replacement process of the same rank to
// catch up with the previous one:
//
//   joined --lost--> awaited --a new process joins--> catching up --it says so--> joined (seat.hpp,
//   worker_recovery.cpp)
//
// Bodies of the control verbs are JSON objects:
//
//   join       {"role":"server","slot","weight","incarnation","threads","host","pid","shards":[..],"clock","control"}
//              or {"role":"worker","rank","size","host","pid"}. Parked: a server is answered when all servers have
//              joined, a worker when all nodes have; the reply is the membership (core/membership.hpp). While a job
//              with replicas runs, a server may take over a slot that is down, and is answered at once. So is the
//              replacement of an awaited worker, with the finished iterations ("clock") or why it cannot resume from
//              there ("cannot"); the reply's count then says how many processes were this worker before, its
//              value_version how many collectives they had called.
//   heartbeat  {"role","slot" or "rank","pid"}, of a server also "busy":[{"shard","function","seconds"}], its
//              "incarnation", the epoch "synced" whose replicas are complete, its "memory_bytes" and
//              "resident_bytes", and its "load" (server_load.hpp); of both "usage", an object for samples; of a worker
//              its "clock", and if it can be replaced "caught_up" and "collectives":{"again":[[begin,end]..],"from"}
//              (collective_log.hpp). The
//              reply's order is proceed, shutdown (the job is done) or abort, with {"status","cause"} as its body: a
//              server that was declared lost gets that too, and exits. Its count is 1 if the sender still holds the
//              position that it names: only then is a lease renewed. A process may send heartbeats before it has
//              joined, and after another one has replaced it.
//   watch      {"role","slot" or "rank"}; the header's epoch is the known one. Answered with the membership as soon as
//              there is one of another epoch.
//   report_death
//              {"role","slot" or "rank","pid","why"}: a launcher has reaped the process. Of a worker also "status", if
//              it was not killed but has exited by itself, which ends the job whatever the policy for a worker's death;
//              and "cannot": why no other process can replace it. Answered at once with {"continues","epoch","cause"}.
//   resize     {"servers": 1 or -1}: a server is to enter, which an event requests from the launcher, or one is to
//              leave. Answered at once with {"slot","epoch"}; refused while another change is in progress, or when too
//              few would be left.
//   find_worker  {"rank"}. Answered at once with {"address","turn","gone","awaited"}: the address for messages from its
//              join (optional there), how many processes were this worker before, why it is gone, if it is, and
//              whether another process will take its place.
//   reserve    {"role","host","pid"}, optionally "slot" or "rank": a process that no launcher has started, before it
//              joins. Answered at once with {"index","workers","servers","settings"}, and the place is kept for it, or
//              with {"taken"}: who has it.
//   tell       {"to":"workers" or "servers","index" of one,"command","body","seconds"}: a command of a user. Answered
//              with {"answers":[{"rank" or "slot","ok","text"}..]} when all have answered, are gone, or are late.
//   take_commands
//              {"role","rank","pid","after","answers":[{"number","ok","text"}..]}: the commands up to "after" have
//              arrived at this worker, and these answers. Optionally "begin" (the first request of a process), "more"
//              (further answers follow: it is answered at once), "end" (the last one), "changes" (those known) and
//              "tell" (a command that it gives, with a "number" of its own). Answered when there is something:
//              {"commands":[{"number","command","body"}..],"changes":[{"number","server","index",
//              "state","host","cause"}..],"told":{"number","answers" or "refused"}}. Both: command_board.hpp
//   progress   any object; becomes an event, at most 20 a second, but always the last one; with a "warning", what was
//              "loaded", or the folder "output", at once
//   leave      {"role","slot" or "rank","status","usage"}. A server that leaves before the workers ends the job, a
//   little
//              later: the launcher may have stopped it because another one died, which then is the cause to report.
//   abort      {"status","cause"}
//   stats      no body. Answered with everything that is known of the job, for display (scheduler_status.cpp); also
//              after the end of the job.
//
// After an abort every request, parked or new, is answered job_ended with {"status","cause"} as its body; heartbeats
// get the same body with status ok and the order abort.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/membership.hpp"
#include "core/shared_buffer.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "server/request/completion.hpp"
#include "server/scheduler/checkpoint_coordinator.hpp"
#include "server/scheduler/clock_removals.hpp"
#include "server/scheduler/collective_service.hpp"
#include "server/scheduler/command_board.hpp"
#include "server/scheduler/metric_family.hpp"
#include "server/scheduler/rebalancer.hpp"
#include "server/scheduler/seat.hpp"
#include "server/scheduler/server_membership.hpp"

namespace paracel::srv {

struct scheduler_options {
  std::uint64_t job = 0;
  std::uint32_t workers = 1;
  std::uint32_t servers = 1;
  std::uint32_t replicas = 1;  ///< replicas of each partition
  bool elastic = false;        ///< servers may join and leave, even without replicas
  bool rebalance = false;      ///< hot partitions move to servers with less to do, if servers may join and leave
  rebalance_limits rebalance_when{};
  std::chrono::milliseconds measured{4000};  ///< for so long, before partitions move
  std::size_t most_placed = 4096;            ///< then none moves any more: each process gets a list of them
  bool eject_workers = false;                ///< the others continue without a worker that dies
  /// The others wait at most this long for the replacement of a dead worker; 0: not at all.
  std::chrono::milliseconds worker_wait{0};
  std::string answers_folder = ".";  ///< of the file of large answers kept for a replacement
  /// A node whose last heartbeat is older is lost. Nodes beat every 0.5 s, so that several may be late.
  std::chrono::milliseconds heartbeat_limit{3000};
  /// The same for a server of a job with replicas, if that is less: the 2 s for which it may serve after it sent a
  /// heartbeat, and a tenth for clock drift. Then another one serves its partitions.
  std::chrono::milliseconds lease_limit{2200};
  /// A server one of whose user functions has been running for longer is lost, with the function's name as the cause;
  /// 0: it is named in the log and waited for.
  std::chrono::milliseconds hang_limit{0};
  /// Nobody of the job starts the processes: one that dies before the job runs leaves its place to another one.
  bool external = false;
  std::string settings{};  ///< JSON for such processes
  /// The time limit for joining; then the job ends with the names of the missing.
  std::chrono::milliseconds join_limit{60'000};
  checkpoint_options checkpoints;
  std::string program{};  ///< its name, and the folder of the logs: for `metrics`
  std::string folder{};
};

/// Thread-safety: owned by the thread of its completions.
class scheduler {
 public:
  using time_point = net::clock_source::time_point;
  /// Receives one JSON object, without a line end. `droppable` events (progress) may be skipped when the reader is
  /// slow.
  using event_sink = std::function<void(std::string_view json, bool droppable)>;

  enum class phase : std::uint8_t { joining, running, done, aborted };

  /// `send`: to threads of servers; without it there are no checkpoints.
  scheduler(scheduler_options options, event_sink events, time_point now,
            checkpoint_coordinator::send_request send = {});

  /// Serves one request. Nothing of `in` is used after the call.
  void handle(const net::request_view& in, shared_buffer tail, completion done, time_point now);
  /// Detects lost nodes and a missed join deadline. Pass it the heartbeats that have arrived first.
  void tick(time_point now);
  /// The calling process itself was suspended for this long (net/attention.hpp): every node has a whole interval to
  /// send its next heartbeat, and no other limit counts that time.
  void was_away(time_point::duration missed, time_point now);
  /// A reply to a request that `send` has sent.
  void on_reply(std::uint64_t number, const net::reply_view& reply, time_point now);
  /// Makes all workers stop for a checkpoint as soon as possible.
  void ask_for_checkpoint() { checkpoints_.ask(servers_in_job_.members()); }
  /// Something needs attention sooner than usual.
  [[nodiscard]] bool busy() const noexcept { return checkpoints_.busy(); }
  /// Ends the job, unless it has already ended.
  void abort(int status, const std::string& cause, time_point now);

  [[nodiscard]] phase state() const noexcept { return phase_; }
  [[nodiscard]] const membership& members() const noexcept { return servers_in_job_.members(); }
  /// The exit status for the end of the job: 0 unless it was aborted.
  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }
  /// What is exported to Prometheus. Cost: parses the last heartbeat of every process.
  [[nodiscard]] std::vector<metric_family> metrics(time_point now);
  /// True when the job has ended and every node has been told, has left, or has had the heartbeat limit to ask.
  [[nodiscard]] bool all_notified(time_point now) const noexcept;

 private:
  enum class role : std::uint8_t { server, worker };
  /// What a body says about its sender.
  struct sender {
    role what = role::worker;
    std::uint32_t index = 0;
    /// Throws: refusal (control_body.hpp).
    static sender in(const nlohmann::json& j, const scheduler_options& options);
  };

  // Handlers of verbs. Throw: refusal, which `handle` answers.
  void join(const net::request_view& in, completion& done, time_point now);
  void heartbeat(const net::request_view& in, completion& done, time_point now);
  void progress(const net::request_view& in, completion& done, time_point now);
  void leave(const net::request_view& in, completion& done, time_point now);
  void on_abort(const net::request_view& in, completion& done, time_point now);
  void watch(const net::request_view& in, completion& done);
  void on_death_report(const net::request_view& in, completion& done, time_point now);
  void resize(const net::request_view& in, completion& done, time_point now);
  void find_worker(const net::request_view& in, completion& done) const;
  void reserve(const net::request_view& in, completion& done, time_point now);
  void tell(const net::request_view& in, completion& done, time_point now);
  void take_commands(const net::request_view& in, completion& done, time_point now);
  void collective(const net::request_view& in, shared_buffer tail, completion& done);
  [[nodiscard]] std::string report(time_point now) const;

  void admit_server(std::uint32_t slot, server_entry s);
  [[nodiscard]] bool vacate(role r, std::uint32_t index, const std::string& why);
  [[nodiscard]] bool has_room(role r, std::uint32_t index) const noexcept;
  void answer_joins(time_point now);
  void broadcast_membership();
  void on_last_words(std::uint32_t slot, const nlohmann::json& words, time_point now);
  void tell_to_end(completion& done, int with_status, const std::string& why);
  void on_synced(std::uint32_t slot, std::uint64_t epoch);
  [[nodiscard]] command_board::recipients recipients() const;
  void note_change(role r, std::uint32_t index);
  void give_up_entering(const std::string& why);
  void rebalance(time_point now);
  void note_moved(std::size_t partitions) const;
  /// A server is to be started in this slot, and has not joined yet.
  [[nodiscard]] bool is_entering(std::uint32_t slot) const noexcept { return entering_ && entering_->first == slot; }
  /// How a worker was lost.
  struct worker_end {
    std::string why;
    bool reaped = false;          ///< the process is dead: a launcher has said so
    std::optional<int> exited{};  ///< it was not killed, but has exited with this status
    std::string cannot{};         ///< why no other process can replace it
  };
  void on_loss(role r, std::uint32_t index, const std::string& why, time_point now);
  [[nodiscard]] nlohmann::json lost_event(role r, std::uint32_t index, const std::string& cause, int with_status) const;
  void on_worker_loss(std::uint32_t rank, const worker_end& end, time_point now);
  [[nodiscard]] bool on_worker_reaped(std::uint32_t rank, const nlohmann::json& body, std::string why, time_point now);
  [[nodiscard]] std::string why_needed(std::uint32_t rank, const worker_end& end) const;
  void check_removals(time_point now);
  void eject(std::uint32_t rank, const std::string& cause, bool reaped, time_point now);
  void await(std::uint32_t rank, const std::string& cause, time_point now);
  void take_place(std::uint32_t rank, const nlohmann::json& body, completion& done, time_point now);
  void on_worker_heartbeat(std::uint32_t rank, const nlohmann::json& body);
  void note_caught_up(std::uint32_t rank);
  void check_awaited(time_point now);
  void end_when_all_left(time_point now);
  void name_busy(std::uint32_t slot, const nlohmann::json& list, time_point now);
  void emit_progress(time_point now);
  void emit_sample(time_point now);
  void emit_usage(role r, std::uint32_t index, const nlohmann::json& body);
  void note_shares(std::uint32_t rank, const nlohmann::json& used);
  void refuse_ended(completion& done) const;
  [[nodiscard]] seat& at(role r, std::uint32_t index) { return r == role::server ? servers_[index] : workers_[index]; }
  [[nodiscard]] const seat& at(role r, std::uint32_t index) const {
    return r == role::server ? servers_[index] : workers_[index];
  }
  [[nodiscard]] std::string state_of(role r, std::uint32_t index) const;
  [[nodiscard]] std::string name(role r, std::uint32_t index) const;
  [[nodiscard]] std::string missing() const;
  [[nodiscard]] std::string ended_json() const;

  // People read no faster; a job of a thousand rounds a second would keep the launcher busy with its progress.
  static constexpr std::chrono::milliseconds progress_interval{50};
  static constexpr std::chrono::milliseconds first_sample{600};  // a little later than the first heartbeats of a run

  scheduler_options options_;
  event_sink events_;
  time_point begin_;
  time_point joining_since_;
  phase phase_ = phase::joining;
  server_membership servers_in_job_;
  std::vector<seat> servers_;  // by slot
  std::vector<seat> workers_;  // by rank
  std::uint32_t servers_joined_ = 0;
  std::uint32_t workers_joined_ = 0;
  std::uint32_t workers_left_ = 0;  // including those that were ejected
  std::optional<std::pair<std::uint32_t, time_point>>
      entering_;  // the slot whose server has not joined yet, since when
  collective_service collectives_;
  checkpoint_coordinator checkpoints_;
  clock_removals removals_;
  rebalancer rebalancer_;
  time_point next_rebalance_{};
  command_board commands_;
  int status_ = 0;
  std::string cause_;
  std::optional<std::pair<std::uint32_t, time_point>>
      left_early_;  // the first server that left a running job, and when
  time_point ended_at_{};
  std::vector<std::pair<time_point, std::string>> losses_;  // that were survived
  struct event_counts {                                     // of servers, of workers
    std::array<std::uint64_t, 2> joins{};
    std::array<std::uint64_t, 2> losses{};
  } counts_;
  double start_time_ = 0;      // since 1970, in seconds
  std::string held_progress_;  // the newest that was not yet forwarded
  std::string last_passed_on_;
  time_point last_progress_{};
  time_point next_sample_{};
  /// (slot, shard) -> the long call that was reported, and when
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::string, time_point>> busy_;
};

}  // namespace paracel::srv
