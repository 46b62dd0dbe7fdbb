// SPDX-License-Identifier: BSD-3-Clause
//
// The scheduler's view of a job: which processes exist, which ids they have, which wait at a barrier. No socket and no
// clock: events arrive as calls, messages leave through a function.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ps/internal/message.h"

namespace paracel::ps_compat {

/// What a process sends when it joins.
struct join_request {
  std::uint64_t client = 0;
  ::ps::Node::Role role = ::ps::Node::WORKER;
  int customer = 0;
  int preferred_rank = -1;
  int workers = 0;  ///< DMLC_NUM_WORKER there
  int servers = 0;
  std::string host;                    ///< its name, for people
  std::string machine;                 ///< the same for processes that can reach each other by local sockets
  std::vector<std::string> addresses;  ///< a local one, and one for other hosts
  std::int64_t pid = 0;
  std::uint64_t started = 0;  ///< start_of_process(pid)

  [[nodiscard]] std::string text() const;
  /// Throws: protocol_error.
  static join_request in(const std::string& text);
};

/// A started customer of a process, which has an id of its own.
struct instance {
  int id = 0;
  int customer = 0;
};
struct job_process {
  join_request facts;
  std::vector<instance> instances;  ///< the first one's id is that of the process
  std::string gone;                 ///< why it is gone; empty: it is not
  bool left = false;                ///< of its own accord
  bool replaced = false;            ///< it replaces one that died
  [[nodiscard]] int id() const { return instances.empty() ? 0 : instances.front().id; }
};

/// Sent to all nodes when the job is complete and when a process is replaced.
struct job_table {
  std::vector<job_process> processes;
  std::string scheduler_machine;
  std::int64_t scheduler_pid = 0;
  std::uint64_t scheduler_started = 0;
  bool started = false;  ///< all have passed the barrier of Start: a replacement does not wait there
  [[nodiscard]] std::string text() const;
  /// Throws: protocol_error.
  static job_table in(const std::string& text);
};

/// A call of a barrier, and its end: the customers that wait or waited, and why it failed.
struct barrier_end {
  int group = 0;
  std::vector<int> customers;
  std::string failure;
  bool last = false;
  [[nodiscard]] std::string text() const;
  static barrier_end in(const std::string& text);
};

/// A process is gone.
struct loss {
  std::uint64_t client = 0;
  std::string why;
  [[nodiscard]] std::string text() const;
  static loss in(const std::string& text);
};

/// Thread-safety: none.
class node_table {
 public:
  /// `send`: a control message to a process, by its client; 0: the scheduler itself.
  using send_function = std::function<void(std::uint64_t client, ::ps::Control::Command what, const std::string& text)>;

  /// `scheduler`: where it runs.
  node_table(int workers, int servers, job_table scheduler, send_function send);

  void join(const join_request& r);
  /// A process is gone: it has left of its own accord, or died.
  void remove(std::uint64_t client, const std::string& why, bool left);
  /// A customer of a process, or of the scheduler (client 0), enters a barrier, which ends when the whole group has.
  /// `last`: it leaves the job afterwards, as all do.
  void barrier(std::uint64_t client, int customer, int group, bool last);
  /// No replacement of a process has joined in time: barriers that need it fail.
  void give_up(std::uint64_t client);

  [[nodiscard]] bool complete() const { return complete_; }
  /// All have left together: no process counts as lost any more.
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] const std::vector<job_process>& processes() const { return table_.processes; }
  [[nodiscard]] const job_process* find(std::uint64_t client) const;

 private:
  struct waiting {
    std::uint64_t client = 0;
    int customer = 0;
    bool last = false;
  };

  [[nodiscard]] std::string refusal(const join_request& r) const;
  void complete_job();
  void broadcast(::ps::Control::Command what, const std::string& text);
  [[nodiscard]] bool in_group(const job_process& p, int group) const;
  /// Releases a barrier that is complete, or fails one that cannot be.
  void settle_barrier(int group);

  const int workers_, servers_;
  send_function send_;
  bool complete_ = false;
  bool over_ = false;
  job_table table_;
  std::map<int, std::vector<waiting>> barriers_;  // by group
  std::vector<std::uint64_t> given_up_;
};

}  // namespace paracel::ps_compat
