// SPDX-License-Identifier: BSD-3-Clause
//
// The state of a job: who has joined, who still lives, what it waits for, why it ended. No socket, no thread; the time
// is an argument.
//
//   joining --all there--> running --all workers left with 0--> done
//      |                      |
//      +------- a loss, an abort, the join deadline -------> aborted     (the first cause stays)
//
// Bodies of the control verbs are JSON objects:
//
//   join       {"role":"server","slot","weight","incarnation","threads","host","pid","shards":[..],"clock","control"}
//              or {"role":"worker","rank","size","host","pid"}. Parked: a server is answered when all servers are there, a
//              worker when everybody is; the answer is the membership (core/membership.hpp).
//   heartbeat  {"role","slot" or "rank", "pid", "busy":[{"shard","function","seconds"}]}. The answer's order is go_on,
//              shutdown (the job is done) or abort, with {"status","cause"} as its body.
//   progress   any object; becomes an event, at most 20 a second, the last one always
//   leave      {"role","slot" or "rank","status"}. A server that leaves before the workers ends the job, a little later:
//              it may be a launcher's answer to the death of another one, which then is the cause to be named.
//   abort      {"status","cause"}
//
// After an abort every request, parked or new, is answered job_ended with {"status","cause"} as its body; heartbeats get
// the same body with status ok and the order abort.
#pragma once

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

#include "core/blob.hpp"
#include "core/membership.hpp"
#include "net/protocol.hpp"
#include "net/time_source.hpp"
#include "server/collective_hub.hpp"
#include "server/completion.hpp"

namespace paracel::srv {

struct scheduler_options {
  std::uint64_t job = 0;
  std::uint32_t workers = 1;
  std::uint32_t servers = 1;
  /// A node whose last heartbeat came longer ago is lost. Nodes beat every 0.5 s, so that several may be late.
  std::chrono::milliseconds heartbeat_limit{3000};
  /// How long the nodes may take to join; then the job ends with the names of the missing.
  std::chrono::milliseconds join_limit{60'000};
};

/// Thread-safety: owned by the thread of its completions.
class scheduler {
 public:
  using time_point = net::time_source::time_point;
  /// Takes one JSON object, without a line end. `droppable` events (progress) may be left out when the reader is slow.
  using event_sink = std::function<void(std::string_view json, bool droppable)>;

  enum class phase : std::uint8_t { joining, running, done, aborted };

  scheduler(scheduler_options options, event_sink events, time_point now);

  /// Serves one request. Nothing of `in` is used after the call.
  void handle(const net::request_view& in, blob tail, completion done, time_point now);
  /// Finds lost nodes and a missed join deadline. Feed it the heartbeats that have arrived first.
  void tick(time_point now);
  /// Ends the job, unless it has ended already.
  void abort(int status, const std::string& cause, time_point now);

  [[nodiscard]] phase state() const noexcept { return phase_; }
  /// The exit status that fits the end of the job: 0 unless it was aborted.
  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }
  /// True when the job has ended and every node knows it, has left, or has had the heartbeat limit to ask.
  [[nodiscard]] bool everybody_knows(time_point now) const noexcept;

 private:
  enum class role : std::uint8_t { server, worker };
  struct node {
    bool joined = false;
    bool gone = false;      ///< left, lost, or told that the job has ended
    int pid = 0;
    std::string host;
    std::optional<time_point> last_sign;  ///< since when the lease counts; empty until the node is known to beat
    completion joining;                   ///< its parked join
  };
  struct sender;  // what a body says about who sent it

  void join(const net::request_view& in, completion done, time_point now);
  void heartbeat(const net::request_view& in, completion done, time_point now);
  void progress(const net::request_view& in, completion done, time_point now);
  void leave(const net::request_view& in, completion done, time_point now);
  void hear_abort(const net::request_view& in, completion done, time_point now);
  void answer_joins(time_point now);
  void lose(role r, std::uint32_t index, time_point now);
  void name_busy(std::uint32_t slot, const nlohmann::json& list, time_point now);
  void emit_progress(time_point now);
  void refuse_ended(completion& done) const;
  [[nodiscard]] node& at(role r, std::uint32_t index) { return r == role::server ? servers_[index] : workers_[index]; }
  [[nodiscard]] std::string name(role r, std::uint32_t index) const;
  [[nodiscard]] std::string missing() const;
  [[nodiscard]] std::string ended_json() const;

  scheduler_options options_;
  event_sink events_;
  time_point begin_;
  phase phase_ = phase::joining;
  membership members_;
  std::vector<node> servers_;  // by slot
  std::vector<node> workers_;  // by rank
  std::uint32_t servers_joined_ = 0;
  std::uint32_t workers_joined_ = 0;
  std::uint32_t workers_left_ = 0;
  collective_hub hub_;
  int status_ = 0;
  std::string cause_;
  std::optional<std::pair<std::uint32_t, time_point>> left_early_;  // the first server that left a running job, and when
  time_point ended_at_{};
  std::string held_progress_;  // the newest that was not yet passed on
  time_point last_progress_{};
  /// (slot, shard) -> the long call that was named, and when
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::string, time_point>> busy_;
};

}  // namespace paracel::srv
