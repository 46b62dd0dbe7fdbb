// SPDX-License-Identifier: BSD-3-Clause
//
// Commands of users to the workers or servers of a job, until they are answered; and the changes that workers are told
// of.
//
// A worker asks with `take_commands`, and the request is parked until there is something for it:
//
//   a command    runs at most once in a worker: it is delivered, in the order in which all commands were given, to one
//                process of this rank, until that one acknowledges its number; a process that takes the rank later
//                does not get it
//   its answer   is repeated by the worker until a reply shows that it has arrived; one that is no text, or too long,
//                is recorded as failed, since a refusal would hit a call of the program that has asked for nothing
//   a change     of a server or a worker, which died or joined; numbered likewise
//
// A server answers a built-in command (`stats`); its control thread is asked again until it does. A recipient that is
// gone, takes no commands, or is late is reported as such, so that every command completes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "server/request/completion.hpp"
#include "server/scheduler/checkpoint_coordinator.hpp"

namespace paracel::srv {

/// Thread-safety: owned by the scheduler's thread.
class command_board {
 public:
  using time_point = net::clock_source::time_point;
  static constexpr std::size_t most_text_bytes = std::size_t{64} << 10;  ///< of a command, or of an answer
  /// Limit of all answers to a command, so that they fit into a message; those that come later are left out.
  static constexpr std::size_t most_answer_bytes = std::size_t{64} << 20;
  static constexpr std::size_t most_open = 1024;  ///< commands without all of their answers

  /// One that a command is for.
  struct recipient {
    std::string gone{};     ///< why it cannot answer; empty: it can
    std::string address{};  ///< of a server's control thread
  };
  struct recipients {
    std::uint32_t workers = 0;
    std::uint32_t servers = 0;
    std::function<recipient(bool is_server, std::uint32_t index)> find;
  };

  command_board(std::uint32_t workers, checkpoint_coordinator::send_request send,
                std::size_t answer_bytes = most_answer_bytes);

  /// The request of a tool, `tell`. `done` gets the answers. Throws: refusal (control_body.hpp); `done` is then unused.
  void tell(const nlohmann::json& body, completion& done, const recipients& all, time_point now);
  /// The request of a worker, `take_commands`, which may give a command too. Throws: as tell.
  void take(std::uint32_t rank, const nlohmann::json& body, completion& done, const recipients& all, time_point now);
  /// Workers with a function for changes are told of this.
  void note_change(nlohmann::json change);

  /// A new process has this rank: it is told of changes from now on.
  void worker_joins(std::uint32_t rank);
  /// The process of this rank answers nothing any more.
  void worker_gone(std::uint32_t rank, const std::string& why);
  void server_gone(std::uint32_t slot, const std::string& why);
  /// A reply to a request sent from here; others are ignored.
  void on_reply(std::uint64_t number, const net::reply_view& reply);
  /// Reports recipients that are late, and asks servers again.
  void tick(time_point now);
  void was_away(time_point::duration missed) noexcept;
  void fail_all(net::status why, std::string_view text);

 private:
  struct answer {
    bool ok = false;
    std::string text;
  };
  struct command {
    bool to_servers = false;
    std::uint32_t first = 0, end = 0;  ///< ranks or slots
    std::string name;
    std::string body;
    double seconds = 0;
    // Its origin: a tool, or a worker with a number of its own.
    completion done{};
    std::optional<std::uint32_t> by{};
    std::uint64_t by_number = 0;
    std::map<std::uint32_t, answer> answers{};     ///< by rank or slot
    std::size_t answer_bytes = 0;                  ///< of their texts
    std::map<std::uint32_t, std::string> asked{};  ///< addresses of servers
    time_point until{};
    time_point again{};
  };
  /// What the process of a rank is owed.
  struct taker {
    bool listens = false;
    bool at_once = false;  ///< its request is answered at once: the first of a process, or more answers follow
    completion parked{};
    std::deque<std::uint64_t> commands{};    ///< that it has not acknowledged
    std::optional<std::uint64_t> changes{};  ///< how many it has been told of; empty: it has no function for them
    std::uint64_t first_change = 0;          ///< number of changes before it joined
    std::uint64_t given = 0;                 ///< the number of its last command
    std::string answers{};                   ///< the answers to that one, JSON
  };

  [[nodiscard]] static command command_in(const nlohmann::json& body, const recipients& all);
  void give(command c, const recipients& all, time_point now);
  void ask_server(std::uint64_t number, std::uint32_t slot);
  void deliver(std::uint32_t rank);
  void record(std::uint64_t number, std::uint32_t index, answer a);
  void fail_missing(bool servers, std::uint32_t index, const std::string& why);

  checkpoint_coordinator::send_request send_;
  std::size_t most_answer_bytes_;
  std::vector<taker> workers_;             // by rank
  std::map<std::uint64_t, command> open_;  // by number
  std::uint64_t last_ = 0;
  std::vector<std::string> changes_;  // JSON; the first has the number 1
};

}  // namespace paracel::srv
