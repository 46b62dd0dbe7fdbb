// SPDX-License-Identifier: BSD-3-Clause
#include "ps/simple_app.h"

#include <chrono>
#include <exception>

namespace ps {

SimpleApp::SimpleApp() = default;

SimpleApp::SimpleApp(int app_id, int customer_id) {
  obj_ = new Customer(app_id, customer_id, [this](const Message& m) { Process(m); });
}

int SimpleApp::Request(int head, const std::string& body, int receiver) {
  const int timestamp = obj_->NewRequest(receiver);
  Message m;
  m.meta.head = head;
  m.meta.body = body;
  m.meta.timestamp = timestamp;
  m.meta.request = true;
  m.meta.simple_app = true;
  m.meta.app_id = obj_->app_id();
  m.meta.customer_id = obj_->customer_id();
  auto* office = Postoffice::Get();
  try {
    for (const int node : office->GetNodeIDs(receiver)) {
      m.meta.recver = node;
      if (office->van()->Send(m) < 0)
        obj_->Fail(timestamp, "node " + std::to_string(node) + ": " + office->van()->WhyGone(node));
    }
  } catch (const std::exception& e) {
    obj_->Fail(timestamp, e.what());
    throw;
  }
  return timestamp;
}

void SimpleApp::Response(const SimpleData& request, const std::string& body) {
  Message m;
  m.meta.head = request.head;
  m.meta.body = body;
  m.meta.timestamp = request.timestamp;
  m.meta.process = request.process;
  m.meta.simple_app = true;
  m.meta.app_id = obj_->app_id();
  m.meta.customer_id = request.customer_id;
  m.meta.recver = request.sender;
  Postoffice::Get()->van()->Send(m);
}

void SimpleApp::set_request_handle(const Handle& handle) {
  CHECK(handle) << "no handle";
  {
    const std::lock_guard lock(mutex_);
    request_handle_ = handle;
  }
  handle_set_.notify_all();
}

void SimpleApp::set_response_handle(const Handle& handle) {
  CHECK(handle) << "no handle";
  const std::lock_guard lock(mutex_);
  response_handle_ = handle;
}

void SimpleApp::Process(const Message& m) {
  const SimpleData data{m.meta.head, m.meta.body, m.meta.sender, m.meta.timestamp, m.meta.customer_id, m.meta.process};
  Handle handle;
  {
    std::unique_lock lock(mutex_);
    if (m.meta.request && !request_handle_ && !waited_) {
      handle_set_.wait_for(lock, std::chrono::seconds(2), [this] { return static_cast<bool>(request_handle_); });
      waited_ = true;
    }
    handle = m.meta.request ? request_handle_ : response_handle_;
  }
  if (!m.meta.request) {
    if (handle && !m.meta.failed) handle(data, this);
    return;
  }
  try {
    if (handle) handle(data, this);
    else Response(data);
  } catch (const std::exception& e) {
    Message failure;
    failure.meta = m.meta;
    failure.meta.request = false;
    failure.meta.failed = true;
    failure.meta.body = e.what();
    failure.meta.recver = m.meta.sender;
    Postoffice::Get()->van()->Send(failure);
  }
}

}  // namespace ps
