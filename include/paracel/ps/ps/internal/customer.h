// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ps/internal/message.h"
#include "ps/internal/threadsafe_queue.h"

namespace ps {

class Postoffice;

/// An end of an app in a process: it counts the responses to its requests, and its own thread handles what arrives for
/// it, in the order of each sender. Thread-safety: any thread.
class Customer {
 public:
  using RecvHandle = std::function<void(const Message& received)>;
  /// Handles a message on the thread that received it, if that takes no user's code. Returns: whether it has.
  using QuickHandle = std::function<bool(const Message& received)>;

  /// Throws: dmlc::Error when the app has a customer of this id in this process.
  Customer(int app_id, int customer_id, RecvHandle handle, QuickHandle quick = {});
  Customer(int app_id, RecvHandle handle) : Customer(app_id, app_id, std::move(handle)) {}
  /// Blocks: until the handle that is running has returned.
  ~Customer();
  DISALLOW_COPY_AND_ASSIGN(Customer);

  [[nodiscard]] int app_id() const { return app_id_; }
  [[nodiscard]] int customer_id() const { return customer_id_; }
  [[nodiscard]] int id() const { return app_id_; }

  /// A timestamp for a request to a node or a group, which is finished when each of its nodes has responded.
  int NewRequest(int receiver);
  /// Blocks: until the request is finished. Throws: paracel::error when it has failed: a node died, left, or refused
  /// it.
  void WaitRequest(int timestamp);
  /// The number of responses; of a request that has long been finished (1024 later ones are) that of its last one.
  int NumResponse(int timestamp);
  /// Counts responses that do not come as messages.
  void AddResponse(int timestamp, int count = 1);
  /// The same of one node.
  void AddResponseOf(int timestamp, int node);
  /// The node's response is here, or it has nothing to respond to: its loss does not fail the request.
  void Arrive(int timestamp, int node);
  /// The request cannot be finished.
  void Fail(int timestamp, const std::string& why);

  /// Blocks: until no handle runs or waits for what has arrived before. Not for handles.
  void Settle();

  /// A message for this customer. Called by the thread that receives.
  void Accept(Message received);
  /// The node has died, or left: the requests that it has not responded to fail. `first_of_process`: the node that its
  /// process sends as.
  void OnNodeLost(int node, int first_of_process, const std::string& why);

 private:
  struct request {
    int receiver = 0;
    int expected = 0;
    int received = 0;
    std::vector<int> arrived;    // nodes whose response is here, handled or not
    std::vector<int> responded;  // nodes whose response is counted
    std::string failure;
    [[nodiscard]] bool finished() const { return received >= expected || !failure.empty(); }
  };

  void Receiving();
  void Respond(const Message& m);
  [[nodiscard]] std::uint32_t Age(int timestamp) const;
  request* Find(int timestamp);
  request* FindOwn(int timestamp);
  void Forget();

  const int app_id_;
  const int customer_id_;
  Postoffice* const office_;
  RecvHandle handle_;
  QuickHandle quick_;
  ThreadsafeQueue<std::optional<Message>> queue_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable finished_;
  std::deque<request> requests_;  // of timestamps from first_ on, which begin again after 2^31 - 1
  std::uint32_t first_ = 0;
  std::unordered_map<int, std::string> failures_;  // of requests that were forgotten before anybody waited for them
  std::uint64_t queued_ = 0;                       // messages, and how many are handled
  std::uint64_t handled_ = 0;
};

}  // namespace ps
