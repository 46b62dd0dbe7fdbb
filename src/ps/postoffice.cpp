// SPDX-License-Identifier: BSD-3-Clause
#include "ps/internal/postoffice.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include <paracel/error.hpp>

namespace ps {

namespace {

thread_local Postoffice* office_of_thread = nullptr;

const char* needed(const char* name) {
  const char* text = Environment::Get()->find(name);
  if (text == nullptr || *text == '\0')
    throw paracel::config_error(std::string(name) +
                                " is not set: start the program with prun.py -w WORKERS -p SERVERS, or set "
                                "DMLC_ROLE, DMLC_NUM_WORKER, DMLC_NUM_SERVER, DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT");
  return text;
}

int count_in(const char* name, int least, int most) {
  const char* text = needed(name);
  const int n = GetEnv(name, 0);
  if (n < least || n > most)
    throw paracel::config_error(std::string(name) + "='" + text + "': want " + std::to_string(least) + " to " +
                                std::to_string(most));
  return n;
}

}  // namespace

Postoffice::Settings Postoffice::Settings::FromEnvironment() {
  Settings s;
  const std::string role = needed("DMLC_ROLE");
  if (role == "worker") s.role = Node::WORKER;
  else if (role == "server") s.role = Node::SERVER;
  else if (role == "scheduler") s.role = Node::SCHEDULER;
  else throw paracel::config_error("DMLC_ROLE='" + role + "': want worker, server or scheduler");
  s.workers = count_in("DMLC_NUM_WORKER", 0, 1 << 20);
  s.servers = count_in("DMLC_NUM_SERVER", 0, 1 << 20);
  s.root_uri = needed("DMLC_PS_ROOT_URI");
  // In ipc:///folder sockets have names.
  if (!s.root_uri.starts_with("ipc://")) s.root_port = count_in("DMLC_PS_ROOT_PORT", 1, 65535);
  s.preferred_rank = GetEnv("DMLC_RANK", s.preferred_rank);
  s.heartbeat_seconds = GetEnv("PS_HEARTBEAT_INTERVAL", s.heartbeat_seconds);
  s.heartbeat_timeout = GetEnv("PS_HEARTBEAT_TIMEOUT", std::max(s.heartbeat_timeout, 3 * s.heartbeat_seconds));
  if (s.heartbeat_seconds < 0 || s.heartbeat_timeout < 0 ||
      (s.heartbeat_timeout > 0 && s.heartbeat_timeout < 2 * s.heartbeat_seconds))
    throw paracel::config_error("PS_HEARTBEAT_TIMEOUT: want 0, or at least two of PS_HEARTBEAT_INTERVAL");
  s.replacement_seconds = GetEnv("PS_RECOVERY_TIMEOUT", s.replacement_seconds);
  s.resend_milliseconds = std::max(1, GetEnv("PS_RESEND_TIMEOUT", s.resend_milliseconds));
  s.drop_percent = GetEnv("PS_DROP_MSG", s.drop_percent);
  if (s.drop_percent < 0 || s.drop_percent > 90)
    throw paracel::config_error("PS_DROP_MSG='" + std::to_string(s.drop_percent) + "': want a percentage from 0 to 90");
  return s;
}

Postoffice* Postoffice::Get() {
  if (office_of_thread != nullptr) return office_of_thread;
  static Postoffice of_process(Settings::FromEnvironment());
  return &of_process;
}

void Postoffice::Use(Postoffice* office) { office_of_thread = office; }

Postoffice::Postoffice(Settings settings, paracel::net::transport* over)
    : settings_(std::move(settings)), van_(std::make_unique<Van>(*this, over)) {
  // Groups are sums of kScheduler, kServerGroup and kWorkerGroup.
  const auto add = [this](int id, int group) {
    node_ids_[id].push_back(id);
    for (int g = 1; g < 8; ++g)
      if ((g & group) != 0 && g != id) node_ids_[g].push_back(id);
  };
  add(kScheduler, kScheduler);
  for (int i = 0; i < settings_.servers; ++i) add(ServerRankToID(i), kServerGroup);
  for (int i = 0; i < settings_.workers; ++i) add(WorkerRankToID(i), kWorkerGroup);
  const auto divide = [n = static_cast<std::uint64_t>(settings_.servers)](std::uint64_t greatest) {
    std::vector<Range> ranges;
    for (std::uint64_t i = 0; i < n; ++i)
      ranges.emplace_back(greatest / n * i, i + 1 == n ? greatest : greatest / n * (i + 1));
    return ranges;
  };
  ranges_ = divide(UINT64_MAX);
  ranges_32_ = divide(UINT32_MAX);
}

Postoffice::~Postoffice() = default;

int Postoffice::verbose() const { return verbosity(); }

void Postoffice::Start(int customer_id, const char* /*argv0*/, bool do_barrier) {
  van_->Start(customer_id);
  // The others have long passed it when a replacement joins.
  if (do_barrier && !van_->my_node().is_recovery) Barrier(customer_id, kScheduler + kServerGroup + kWorkerGroup);
}

void Postoffice::Finalize(int customer_id, bool do_barrier) {
  if (customer_id == 0) RefuseUndelivered();
  if (do_barrier) {
    try {
      van_->Barrier(customer_id, kScheduler + kServerGroup + kWorkerGroup, true);
    } catch (...) {
      if (customer_id == 0) van_->Stop();  // messages in flight to the others are still delivered
      throw;
    }
  }
  if (customer_id != 0) return;
  van_->Stop();
  Callback callback;
  {
    const std::lock_guard lock(mutex_);
    callback.swap(exit_callback_);
    undelivered_.clear();
    refuses_ = false;
  }
  if (callback) callback();
}

void Postoffice::RegisterExitCallback(Callback callback) {
  const std::lock_guard lock(mutex_);
  exit_callback_ = std::move(callback);
}

void Postoffice::SetNodeCallback(NodeCallback callback) {
  const std::lock_guard lock(mutex_);
  node_callback_ = std::move(callback);
}

void Postoffice::AddCustomer(Customer* customer) {
  const customer_key key{customer->app_id(), customer->customer_id()};
  const std::lock_guard lock(mutex_);
  CHECK(customers_.emplace(key, customer).second)
      << "app " << key.first << " has a customer " << key.second << " in this process already";
  if (const auto waiting = undelivered_.find(key); waiting != undelivered_.end()) {
    for (auto& m : waiting->second) customer->Accept(std::move(m));
    undelivered_.erase(waiting);
  }
  added_.notify_all();
}

void Postoffice::RemoveCustomer(Customer* customer) {
  const std::lock_guard lock(mutex_);
  customers_.erase({customer->app_id(), customer->customer_id()});
}

Customer* Postoffice::GetCustomer(int app_id, int customer_id, int seconds) const {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return customers_.contains({app_id, customer_id}); };
  return added_.wait_for(lock, std::chrono::seconds(seconds), there) ? customers_.at({app_id, customer_id}) : nullptr;
}

const std::vector<int>& Postoffice::GetNodeIDs(int node_id) const {
  const auto at = node_ids_.find(node_id);
  CHECK(at != node_ids_.end()) << "node or group " << node_id << " does not exist";
  return at->second;
}

/// Requests to servers and the scheduler are for the app; all others name the customer.
Postoffice::customer_key Postoffice::KeyOf(const Meta& m) const {
  return {m.app_id, m.request && settings_.role != Node::WORKER ? m.app_id : m.customer_id};
}

void Postoffice::Deliver(Message received) {
  const auto key = KeyOf(received.meta);
  std::unique_lock lock(mutex_);  // held so that the customer is not removed meanwhile
  if (const auto at = customers_.find(key); at != customers_.end()) return at->second->Accept(std::move(received));
  // A response to a customer that has ended is dropped.
  if (!received.meta.request) return;
  if (!refuses_) return undelivered_[key].push_back(std::move(received));
  lock.unlock();
  Refuse(received);
}

bool Postoffice::Finishes() const {
  const std::lock_guard lock(mutex_);
  return refuses_;
}

void Postoffice::Refuse(const Message& m) {
  Message failure;
  failure.meta = m.meta;
  failure.meta.request = false;
  failure.meta.failed = true;
  failure.meta.data_type.clear();
  failure.meta.body = "node " + std::to_string(van_->my_node().id) + " has no app " +
                      std::to_string(KeyOf(m.meta).first) + ", and has finished";
  failure.meta.recver = m.meta.sender;
  van_->Send(failure);
}

/// Refuses requests that wait for a customer: none will be added any more.
void Postoffice::RefuseUndelivered() {
  std::map<customer_key, std::vector<Message>> refused;
  {
    const std::lock_guard lock(mutex_);
    refuses_ = true;
    refused.swap(undelivered_);
  }
  for (const auto& [key, messages] : refused)
    for (const auto& m : messages) Refuse(m);
}

void Postoffice::OnNodeLost(const Node& node, int first_of_process, const std::string& why) {
  NodeCallback callback;
  {
    const std::lock_guard lock(mutex_);
    callback = node_callback_;
  }
  if (callback) callback(node, false, why);  // before any waiting thread notices
  const std::lock_guard lock(mutex_);
  for (const auto& [key, customer] : customers_)
    customer->OnNodeLost(node.id, first_of_process, node.DebugString() + ": " + why);
}

void Postoffice::OnNodeJoined(const Node& node) {
  NodeCallback callback;
  {
    const std::lock_guard lock(mutex_);
    callback = node_callback_;
  }
  if (callback) callback(node, true, {});
}

// ---- texts

std::string Node::ShortDebugString() const {
  return std::string(role == SERVER   ? "S"
                     : role == WORKER ? "W"
                                      : "H") +
         (id == kEmpty ? "" : "[" + std::to_string(id) + "]");
}

std::string Node::DebugString() const {
  const char* name = role == SERVER ? "server" : role == WORKER ? "worker" : "scheduler";
  return std::string(name) + " " + std::to_string(Postoffice::IDtoRank(id)) + " (node " + std::to_string(id) + ")";
}

std::string Meta::DebugString() const {
  std::ostringstream text;
  text << sender << " => " << recver << ": "
       << (request  ? "request"
           : failed ? "failure"
                    : "response")
       << " of app " << app_id << ", customer " << customer_id << ", timestamp " << timestamp << ", head " << head;
  if (!simple_app) text << (push ? ", push" : "") << (pull ? ", pull" : "");
  if (!body.empty()) text << ", body of " << body.size() << " bytes";
  return text.str();
}

std::string Message::DebugString() const {
  std::ostringstream text;
  text << meta.DebugString();
  for (const auto& a : data) text << ", " << a.size() << " bytes";
  return text.str();
}

}  // namespace ps
