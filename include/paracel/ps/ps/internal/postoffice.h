// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/base.h"
#include "ps/internal/customer.h"
#include "ps/internal/van.h"
#include "ps/range.h"

namespace ps {

/// What this process is in its job, and its customers.
/// Thread-safety: any thread.
class Postoffice {
 public:
  using Callback = std::function<void()>;
  using NodeCallback = std::function<void(const Node& node, bool joined, const std::string& why)>;

  /// The one of this process. What it is comes from DMLC_ROLE, DMLC_NUM_WORKER, DMLC_NUM_SERVER, DMLC_PS_ROOT_URI and
  /// DMLC_PS_ROOT_PORT. Throws: paracel::error when one is missing or wrong.
  static Postoffice* Get();

  /// What the environment says otherwise.
  struct Settings {
    Node::Role role = Node::SCHEDULER;
    int workers = 0;
    int servers = 0;
    std::string root_uri;            ///< DMLC_PS_ROOT_URI: a host, or ipc:///folder, where all sockets are then
    int root_port = 0;               ///< DMLC_PS_ROOT_PORT, of a host
    int preferred_rank = -1;         ///< DMLC_RANK
    double heartbeat_seconds = 1;    ///< PS_HEARTBEAT_INTERVAL
    double heartbeat_timeout = 10;   ///< PS_HEARTBEAT_TIMEOUT; 0: silence is no reason
    double replacement_seconds = 0;  ///< PS_RECOVERY_TIMEOUT
    int resend_milliseconds = 1000;  ///< PS_RESEND_TIMEOUT
    int drop_percent = 0;            ///< PS_DROP_MSG
    static Settings FromEnvironment();
  };
  /// A node beside others in one process: `Get` of a thread returns it after `Use`.
  explicit Postoffice(Settings settings, paracel::net::transport* over = nullptr);
  ~Postoffice();
  DISALLOW_COPY_AND_ASSIGN(Postoffice);
  /// Of the calling thread; null: the one of the process.
  static void Use(Postoffice* office);

  Van* van() { return van_.get(); }
  [[nodiscard]] const Settings& settings() const { return settings_; }

  void Start(int customer_id, const char* argv0 = nullptr, bool do_barrier = true);
  void Finalize(int customer_id, bool do_barrier = true);
  void RegisterExitCallback(Callback callback);
  /// Called by the receiving thread when a node of the job dies, with the reason, or a replacement has joined.
  void SetNodeCallback(NodeCallback callback);

  void AddCustomer(Customer* customer);
  void RemoveCustomer(Customer* customer);
  /// Waits for it at most `seconds`; null when there is none.
  Customer* GetCustomer(int app_id, int customer_id, int seconds = 0) const;

  /// The ids of a node or of the nodes of a group. Throws: dmlc::Error when there is no such.
  [[nodiscard]] const std::vector<int>& GetNodeIDs(int node_id) const;
  /// As many ranges of about equal length as there are servers: the last one's end is kMaxKey, which belongs to it,
  /// too.
  [[nodiscard]] const std::vector<Range>& GetServerKeyRanges() const { return sizeof(Key) == 4 ? ranges_32_ : ranges_; }
  [[nodiscard]] std::vector<int> GetDeadNodes(int seconds = 60) const { return van_->DeadNodes(seconds); }

  static constexpr int WorkerRankToID(int rank) { return rank * 2 + 9; }
  static constexpr int ServerRankToID(int rank) { return rank * 2 + 8; }
  static constexpr int IDtoRank(int id) { return id < 8 ? 0 : (id - 8) / 2; }

  [[nodiscard]] int num_workers() const { return settings_.workers; }
  [[nodiscard]] int num_servers() const { return settings_.servers; }
  [[nodiscard]] int my_rank() const { return IDtoRank(van_->my_node().id); }
  [[nodiscard]] int is_worker() const { return settings_.role == Node::WORKER ? 1 : 0; }
  [[nodiscard]] int is_server() const { return settings_.role == Node::SERVER ? 1 : 0; }
  [[nodiscard]] int is_scheduler() const { return settings_.role == Node::SCHEDULER ? 1 : 0; }
  [[nodiscard]] int verbose() const;
  [[nodiscard]] bool is_recovery() const { return van_->my_node().is_recovery; }

  void Barrier(int customer_id, int group) { van_->Barrier(customer_id, group); }

  /// Finalize has been called.
  [[nodiscard]] bool Finishes() const;

  // Of the receiving thread:

  /// A message of an app. One for a customer that does not exist yet is kept for it.
  void Deliver(Message received);
  void OnNodeLost(const Node& node, int first_of_process, const std::string& why);
  void OnNodeJoined(const Node& node);

 private:
  using customer_key = std::pair<int, int>;  // app, customer
  [[nodiscard]] customer_key KeyOf(const Meta& m) const;
  void RefuseUndelivered();
  void Refuse(const Message& m);

  const Settings settings_;
  std::map<int, std::vector<int>> node_ids_;
  std::vector<Range> ranges_, ranges_32_;  // of 64-bit keys, and of those of programs with USE_KEY32

  mutable std::mutex mutex_;
  mutable std::condition_variable added_;
  std::map<customer_key, Customer*> customers_;
  std::map<customer_key, std::vector<Message>> undelivered_;
  bool refuses_ = false;  // Finalize has been called: no customer comes any more
  Callback exit_callback_;
  NodeCallback node_callback_;
  std::unique_ptr<Van> van_;  // last: its thread uses the others
};

}  // namespace ps
