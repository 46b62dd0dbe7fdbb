// SPDX-License-Identifier: BSD-3-Clause
//
// Commands to and from this worker, and changes of the job's membership, over a separate channel to the scheduler. A
// request (`take_commands`) is always parked there; each one repeats what the scheduler may not know yet: the number of
// the last command that has arrived, answers, and the command that this worker issues. The reply carries what the
// scheduler has for this worker, which it repeats until a request acknowledges it. Answers that do not fit into a
// control message go with the next request; one with more to come is answered at once.
//
// Nothing that a function of the program returns or throws ends the worker: an answer that cannot be sent is a failed
// one. If the scheduler refuses a request all the same, the worker accepts no more commands and goes on.
//
// No thread: what has arrived is handled inside `take` and `tell`.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/job_control.hpp>

#include "net/scheduler_channel.hpp"

namespace paracel {

/// Thread-safety: owned by the thread that runs the algorithm.
class command_channel {
 public:
  using command_function = std::function<std::string(const std::string&)>;
  using change_function = std::function<void(const job_node&)>;
  using condition = std::function<bool()>;
  static constexpr std::size_t most_text_bytes = std::size_t{64} << 10;

  struct options {
    std::function<std::unique_ptr<net::scheduler_channel>()> open;   ///< empty: a job without a scheduler
    nlohmann::json identity;                                         ///< of this process
    std::function<net::request_header(net::request_header)> marked;  ///< with job and rank
    /// Throws when the job has ended; called at least every 100 ms.
    std::function<void()> check;
    std::function<void(const net::reply_view&)> on_ended;  ///< a reply says that it has
    std::function<void(const std::string&)> warn;          ///< for a person; empty: nobody is told
  };
  explicit command_channel(options o);

  /// In force until `forget(owner)`. Throws: config_error when there is one of this name.
  void on_command(const void* owner, const std::string& name, command_function f);
  void on_change(const void* owner, change_function f);
  void forget(const void* owner);

  /// Runs what has arrived; waits for the first at most `limit`. Returns: the number of commands and changes. Inside
  /// one of these functions: 0, at once. `runs`: asked before each; once it is false, the rest waits for the next time.
  std::size_t take(std::chrono::nanoseconds limit, const condition& runs = {});
  /// Throws: config_error when the name or the body cannot be sent; error when the command was refused.
  std::vector<command_answer> tell(const command_target& to, const std::string& name, const std::string& body,
                                   double seconds);
  /// No more commands are accepted. Blocks: until the scheduler has the answers, at most `limit`.
  void close(std::chrono::milliseconds limit);

 private:
  using steady_clock = std::chrono::steady_clock;
  struct known_command {
    const void* owner;
    std::string name;
    command_function run;
  };
  struct given_answer {
    std::uint64_t number;
    bool ok;
    std::string text;
    std::size_t encoded_bytes;  ///< of the text as JSON
  };
  struct arrived_command {
    std::uint64_t number;
    std::string name;
    std::string body;
  };

  static void check_name(const std::string& name);
  void begin();
  void ask(bool begins = false, bool ends = false);
  bool receive(std::chrono::milliseconds timeout);
  bool receive_asked(std::chrono::milliseconds timeout);
  [[nodiscard]] bool carries_all() const noexcept { return carried_ == answers_.size(); }
  void on_refusal(const std::string& why);
  void await_reply();
  void read(const net::reply_view& reply);
  std::size_t run_arrived(const condition& runs = {});
  [[nodiscard]] command_answer run(const std::string& name, const std::string& body);

  options options_;
  std::unique_ptr<net::scheduler_channel> scheduler_;  // null: nothing has been asked yet
  bool waits_ = false;                                 // for a reply
  bool runs_ = false;                                  // one of the functions
  bool asks_ = false;                                  // on behalf of a call of the user
  std::string refused_;                                // why no more commands are accepted
  steady_clock::time_point looked_{};
  std::vector<known_command> commands_;
  std::vector<std::pair<const void*, change_function>> changes_;
  std::uint64_t after_ = 0;           // the last command that has arrived
  std::uint64_t change_ = 0;          // the last change that has
  bool wants_changes_ = false;        // stays true when no function wants them any more
  std::deque<given_answer> answers_;  // that the scheduler may not have
  std::size_t carried_ = 0;           // the first ones, which are in the request that waits for a reply
  std::deque<arrived_command> arrived_;
  std::deque<job_node> changed_;
  std::uint64_t given_ = 0;
  nlohmann::json gives_;                // this worker's command while unanswered, or null
  std::optional<nlohmann::json> told_;  // its answers
};

/// From the scheduler's object about a server or a worker.
[[nodiscard]] job_node job_node_of(bool is_server, std::size_t number, const nlohmann::json& j);

}  // namespace paracel
