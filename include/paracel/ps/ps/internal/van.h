// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ps/internal/message.h"

namespace paracel::net {
class transport;
}

namespace ps {

class Postoffice;

/// The connections of a process to the others of its job.
/// Thread-safety: any thread.
class Van {
 public:
  /// `over`: null for ZeroMQ.
  explicit Van(Postoffice& office, paracel::net::transport* over = nullptr);
  ~Van();
  DISALLOW_COPY_AND_ASSIGN(Van);

  /// Joins the job as one more customer. Blocks: until every node of the job has. Throws: paracel::error when the
  /// scheduler refuses it, or its address cannot be used.
  void Start(int customer_id);
  /// Blocks: until what was sent has arrived, a few seconds at most. Afterwards it can be started again.
  void Stop();
  [[nodiscard]] bool IsReady() const;
  /// This process; of one with several customers the first.
  [[nodiscard]] Node my_node() const;
  [[nodiscard]] int GetTimestamp() { return timestamp_++; }

  /// Sends to meta.recver. Returns: the bytes sent; -1 when that node is dead or has left.
  int Send(const Message& message);
  /// Blocks: until as many customers as the group has have called. `last`: this process leaves afterwards, as all do.
  /// Throws: paracel::error when one of them died or left.
  void Barrier(int customer_id, int group, bool last = false);
  /// Nodes that died and have not been replaced, and at the scheduler those without a heartbeat for `seconds`.
  [[nodiscard]] std::vector<int> DeadNodes(int seconds) const;
  /// Why a node cannot be reached; empty: it can.
  [[nodiscard]] std::string WhyGone(int node) const;
  /// The nodes of the process that a node belongs to; none for the scheduler.
  [[nodiscard]] std::vector<int> NodesBeside(int node) const;

 private:
  class network;
  [[nodiscard]] std::shared_ptr<network> current() const;

  Postoffice& office_;
  paracel::net::transport* const over_;
  std::uint64_t starts_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<network> network_;  // calls that have begun keep theirs
  std::atomic<int> timestamp_{0};
};

}  // namespace ps
