// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ps/internal/postoffice.h"

namespace ps {

/// A request or a response of a SimpleApp.
struct SimpleData {
  int head = 0;
  std::string body;
  int sender = 0;  ///< node id
  int timestamp = 0;
  int customer_id = 0;
  std::uint32_t process = 0;  ///< of a request: which process sent it
};

/// Requests that consist of a number and a text, from any node to any nodes.
/// Thread-safety: any thread.
class SimpleApp {
 public:
  /// `received` is a request or a response; called by the customer's thread.
  using Handle = std::function<void(const SimpleData& received, SimpleApp* app)>;

  /// The app's id is the same on all nodes; the customer's one is unique in its process.
  SimpleApp(int app_id, int customer_id);
  explicit SimpleApp(int app_id) : SimpleApp(app_id, app_id) {}
  virtual ~SimpleApp() { delete obj_; }
  DISALLOW_COPY_AND_ASSIGN(SimpleApp);

  /// Sends a request to a node or a group. Returns: its timestamp.
  int Request(int head, const std::string& body, int receiver);
  /// Blocks: until all nodes have responded. Throws: paracel::error when one cannot.
  virtual void Wait(int timestamp) { obj_->WaitRequest(timestamp); }
  void Response(const SimpleData& request, const std::string& body = "");
  /// Requests that come before it wait for it, the first one for two seconds at most: an app without a handle responds
  /// with an empty text.
  void set_request_handle(const Handle& handle);
  void set_response_handle(const Handle& handle);
  Customer* get_customer() { return obj_; }

 protected:
  SimpleApp();
  void Process(const Message& m);

  Customer* obj_ = nullptr;

 private:
  std::mutex mutex_;
  std::condition_variable handle_set_;
  bool waited_ = false;
  Handle request_handle_;
  Handle response_handle_;
};

}  // namespace ps
