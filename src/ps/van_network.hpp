// SPDX-License-Identifier: BSD-3-Clause
//
// A process's part in a job: van.cpp joins, leaves and exchanges messages, van_watch.cpp notices deaths.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/attention.hpp"
#include "net/transport.hpp"
#include "ps/internal/postoffice.h"
#include "ps/internal/van.h"
#include "ps/machine.hpp"
#include "ps/node_channels.hpp"
#include "ps/node_table.hpp"

namespace ps {

using namespace paracel::ps_compat;
using std::chrono::steady_clock;

class Van::network {
 public:
  /// `starts`: how often this process has left the job of this address before.
  /// `me`: its node there.
  network(Postoffice& office, paracel::net::transport* over, std::uint64_t starts, Node me = {});
  ~network() { stop(); }

  void start(int customer);
  void stop();
  [[nodiscard]] Node my_node() const {
    const std::lock_guard lock(mutex_);
    return me_;
  }
  [[nodiscard]] bool ready() const {
    const std::lock_guard lock(mutex_);
    return ready_;
  }
  int send(const Message& m);
  void barrier(int customer, int group, bool last);
  [[nodiscard]] std::vector<int> dead_nodes(int seconds) const;
  [[nodiscard]] std::string why_gone(int node) const;
  [[nodiscard]] std::vector<int> nodes_beside(int node) const;

 private:
  static constexpr std::chrono::milliseconds longest_turn{1000};  // between two ticks

  /// What the program is told, after the lock is released.
  struct event {
    Node node;
    bool joined = false;
    std::string why;
    int first_of_process = 0;
  };
  struct watched_process {
    process_watch watch;
    steady_clock::time_point heard;
    steady_clock::time_point died;  // if a replacement is awaited
    bool awaits_replacement = false;
  };

  [[nodiscard]] bool is_scheduler() const { return office_.is_scheduler() != 0; }
  void open();
  void on_message(const sender& from, Message m);
  void on_app_message(const sender& from, Message m);
  void on_control(const sender& from, const Message& m);
  void on_request(const sender& from, const Message& m);
  void apply(Control::Command what, const std::string& text);
  void apply_table(job_table table);
  void lose(job_process& p, const std::string& why);
  void watch_scheduler();
  void apply_loss(const std::string& text);
  void tick();
  void watch_processes(steady_clock::time_point now);
  void tell();
  void send_control(std::uint64_t client, Control::Command what, const std::string& text);
  [[nodiscard]] const job_process* process_of(int node) const;
  [[nodiscard]] std::string address_of(const join_request& facts) const;

  Postoffice& office_;
  paracel::net::transport* const over_;
  const std::uint64_t starts_;
  const std::uint64_t client_;
  Node me_;
  std::unique_ptr<paracel::net::transport> own_transport_;
  std::shared_ptr<node_channels> channels_;  // null before start and after stop

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
  bool leaving_ = false;
  bool finished_ = false;  // together with all others
  std::string refused_;
  std::vector<job_process> processes_;
  std::map<std::pair<int, int>, std::deque<std::string>> barrier_ends_;  // by group and customer: why each failed
  std::vector<std::pair<sender, Message>> early_;                        // arrived before the table
  std::vector<event> events_;
  steady_clock::time_point heartbeat_;
  paracel::net::attention<steady_clock::time_point> attention_{steady_clock::now(), longest_turn};
  std::optional<process_watch> scheduler_;  // if it runs on this machine
  // Used by the scheduler only.
  std::unique_ptr<node_table> table_;
  std::unordered_map<std::uint64_t, watched_process> watched_;
};

}  // namespace ps
