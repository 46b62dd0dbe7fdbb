// SPDX-License-Identifier: BSD-3-Clause
#include "ps/internal/customer.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <paracel/error.hpp>

#include "ps/internal/postoffice.h"

namespace ps {

namespace {
constexpr std::size_t kept_requests = 1024;  // finished ones that NumResponse still finds
constexpr std::uint32_t most_timestamp = 0x7fffffff;
}  // namespace

Customer::Customer(int app_id, int customer_id, RecvHandle handle, QuickHandle quick)
    : app_id_(app_id),
      customer_id_(customer_id),
      office_(Postoffice::Get()),
      handle_(std::move(handle)),
      quick_(std::move(quick)) {
  thread_ = std::thread([this] { Receiving(); });
  try {
    office_->AddCustomer(this);
  } catch (...) {
    queue_.Push(std::nullopt);
    thread_.join();
    throw;
  }
}

Customer::~Customer() {
  office_->RemoveCustomer(this);
  queue_.Push(std::nullopt);
  thread_.join();
}

void Customer::Receiving() {
  Postoffice::Use(office_);
  for (;;) {
    std::optional<Message> m;
    queue_.WaitAndPop(&m);
    if (!m) return;
    try {
      handle_(*m);
    } catch (const std::exception& e) {
      if (m->meta.request) LOG(ERROR) << "app " << app_id_ << ": a handle threw: " << e.what();
      else Fail(m->meta.timestamp, e.what());
    }
    Respond(*m);
    const std::lock_guard lock(mutex_);
    ++handled_;
    finished_.notify_all();
  }
}

void Customer::Accept(Message received) {
  if (!received.meta.request) Arrive(received.meta.timestamp, received.meta.sender);
  if (quick_ && quick_(received)) return Respond(received);
  {
    const std::lock_guard lock(mutex_);
    ++queued_;
  }
  queue_.Push(std::move(received));
}

void Customer::Settle() {
  if (std::this_thread::get_id() == thread_.get_id()) return;
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this, until = queued_] { return handled_ >= until; });
}

void Customer::Respond(const Message& m) {
  if (m.meta.request) return;
  if (m.meta.failed) Fail(m.meta.timestamp, m.meta.body);
  else AddResponseOf(m.meta.timestamp, m.meta.sender);
}

int Customer::NewRequest(int receiver) {
  const auto expected = static_cast<int>(office_->GetNodeIDs(receiver).size());
  const std::lock_guard lock(mutex_);
  Forget();
  requests_.push_back(
      {.receiver = receiver, .expected = expected, .received = 0, .arrived = {}, .responded = {}, .failure = {}});
  return static_cast<int>((first_ + requests_.size() - 1) & most_timestamp);
}

/// Drops old finished requests, which a program may never ask for.
void Customer::Forget() {
  while (requests_.size() > kept_requests && requests_.front().finished()) {
    auto& failure = requests_.front().failure;
    if (!failure.empty() && failures_.size() < kept_requests) failures_[static_cast<int>(first_)] = std::move(failure);
    requests_.pop_front();
    first_ = (first_ + 1) & most_timestamp;
  }
}

/// The position after first_.
std::uint32_t Customer::Age(int timestamp) const {
  return (static_cast<std::uint32_t>(timestamp) - first_) & most_timestamp;
}

/// Null: not a request of this customer, or finished long ago.
Customer::request* Customer::FindOwn(int timestamp) {
  const auto age = Age(timestamp);
  return timestamp >= 0 && age < requests_.size() ? &requests_[age] : nullptr;
}

/// Null: finished long ago.
Customer::request* Customer::Find(int timestamp) {
  auto* r = FindOwn(timestamp);
  CHECK(r != nullptr || (timestamp >= 0 && static_cast<std::uint32_t>(timestamp) < first_) ||
        Age(timestamp) > most_timestamp / 2)
      << "timestamp " << timestamp << ": no such request of customer " << customer_id_;
  return r;
}

void Customer::WaitRequest(int timestamp) {
  std::unique_lock lock(mutex_);
  (void)Find(timestamp);
  finished_.wait(lock, [&] {
    const auto* r = Find(timestamp);
    return r == nullptr || r->finished();
  });
  const auto* r = Find(timestamp);
  auto failure = r != nullptr ? r->failure : std::string();
  if (const auto old = failures_.find(timestamp); r == nullptr && old != failures_.end()) {
    failure = std::move(old->second);
    failures_.erase(old);
  }
  if (!failure.empty())
    throw paracel::network_error(
        "request " + std::to_string(timestamp) + " of app " + std::to_string(app_id_) + ": " + failure, true);
}

int Customer::NumResponse(int timestamp) {
  const std::lock_guard lock(mutex_);
  const auto* r = Find(timestamp);
  return r != nullptr ? r->received : requests_.front().expected;
}

void Customer::AddResponse(int timestamp, int count) {
  const std::lock_guard lock(mutex_);
  auto* r = Find(timestamp);
  if (r == nullptr) return;
  r->received += count;
  if (r->finished()) finished_.notify_all();
}

void Customer::AddResponseOf(int timestamp, int node) {
  std::unique_lock lock(mutex_);
  auto* r = FindOwn(timestamp);
  if (r == nullptr) return;
  if (std::ranges::find(r->arrived, node) == r->arrived.end()) r->arrived.push_back(node);
  const auto before = std::ranges::count(r->responded, node);
  if (before > 0) {
    // A process with several nodes responds as its first one for each of them that was asked; no other does so twice.
    const auto& asked = office_->GetNodeIDs(r->receiver);
    lock.unlock();
    const auto beside = office_->van()->NodesBeside(node);
    const auto most = std::ranges::count_if(beside, [&](int n) { return std::ranges::find(asked, n) != asked.end(); });
    lock.lock();
    r = FindOwn(timestamp);
    if (r == nullptr) return;
    if (before >= most) {
      LOG(WARNING) << "app " << app_id_ << ": node " << node << " has responded to request " << timestamp
                   << " again: a handle must respond once; ignored";
      return;
    }
  }
  r->responded.push_back(node);
  if (++r->received >= r->expected) finished_.notify_all();
}

void Customer::Arrive(int timestamp, int node) {
  const std::lock_guard lock(mutex_);
  if (auto* r = FindOwn(timestamp); r != nullptr) r->arrived.push_back(node);
}

void Customer::Fail(int timestamp, const std::string& why) {
  const std::lock_guard lock(mutex_);
  auto* r = FindOwn(timestamp);
  if (r == nullptr || r->finished()) return;
  r->failure = why.empty() ? "failed" : why;
  finished_.notify_all();
}

/// The responses of a process with several customers all come from its first one.
void Customer::OnNodeLost(int node, int first_of_process, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& r : requests_) {
    if (r.finished() || std::ranges::find(r.arrived, first_of_process) != r.arrived.end()) continue;
    const auto& all = office_->GetNodeIDs(r.receiver);
    if (std::ranges::find(all, node) != all.end()) r.failure = why;
  }
  finished_.notify_all();
}

}  // namespace ps
