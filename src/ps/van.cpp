// SPDX-License-Identifier: BSD-3-Clause
#include "ps/internal/van.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <string_view>
#include <utility>

#include <paracel/error.hpp>

#include "core/identity.hpp"
#include "net/bind_policy.hpp"
#include "net/job_key.hpp"
#include "net/zmq_transport.hpp"
#include "ps/base.h"
#include "ps/van_network.hpp"

namespace ps {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds flush_limit{2000};
constexpr std::size_t most_early_messages = std::size_t{1} << 20U;

constexpr std::string_view in_folder = "ipc://";

/// Whether the job's sockets are files in the folder that DMLC_PS_ROOT_URI names.
bool uses_folder(const Postoffice::Settings& s) { return s.root_uri.starts_with(in_folder); }
/// Where the scheduler is, for people.
std::string root_text(const Postoffice::Settings& s) {
  return uses_folder(s) ? s.root_uri : s.root_uri + ':' + std::to_string(s.root_port);
}

/// What all processes of a job know of it before they communicate.
std::uint64_t job_number(const Postoffice::Settings& s, std::uint64_t starts) {
  std::uint64_t h = 0xcbf29ce484222325U + starts;
  for (const char c : root_text(s)) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

}  // namespace

Van::network::network(Postoffice& office, paracel::net::transport* over, std::uint64_t starts, Node me)
    : office_(office), over_(over), starts_(starts), client_(paracel::random_id()), me_(std::move(me)) {}

// ---- joining and leaving

void Van::network::open() {
  const auto& s = office_.settings();
  auto* transport = over_;
  if (transport == nullptr) {
    paracel::net::take_job_key();
    // A message that this machine could not hold would be refused by its sender's machine, too.
    own_transport_ = std::make_unique<paracel::net::zmq_transport>(
        paracel::net::transport_limits{.max_message_bytes = machine_memory()});
    transport = own_transport_.get();
  }
  const auto root = over_ != nullptr ? "inproc://" + root_text(s)
                    : uses_folder(s) ? s.root_uri + "/scheduler"
                                     : tcp_address(s.root_uri, s.root_port);
  std::vector<std::string> addresses;
  if (is_scheduler()) addresses.push_back(root);
  else if (over_ != nullptr) addresses.push_back("inproc://ps-" + std::to_string(client_));
  else if (uses_folder(s)) addresses.push_back(s.root_uri + "/" + std::to_string(client_));
  else {
    addresses.push_back("ipc://@paracel-ps-" + std::to_string(client_));
    if (!paracel::net::is_loopback(root))
      addresses.push_back("tcp://" + own_address_towards(s.root_uri, s.root_port) + ":*");
  }
  me_.role = s.role;
  me_.hostname = paracel::host_name();
  me_.port = is_scheduler() ? s.root_port : 0;
  channels_ = std::make_shared<node_channels>(*transport,
                                              node_channels::options{.job = job_number(s, starts_),
                                                                     .client = client_,
                                                                     .is_scheduler = is_scheduler(),
                                                                     .resend = milliseconds(s.resend_milliseconds),
                                                                     .drop_percent = s.drop_percent},
                                              addresses);
  if (is_scheduler()) {
    me_.id = kScheduler;
    channels_->set_node(kScheduler);
    table_ = std::make_unique<node_table>(s.workers, s.servers,
                                          job_table{.processes = {},
                                                    .scheduler_machine = machine_name(),
                                                    .scheduler_pid = own_pid(),
                                                    .scheduler_started = start_of_process(own_pid())},
                                          [this](std::uint64_t client, Control::Command what, const std::string& text) {
                                            if (client == node_channels::scheduler) apply(what, text);
                                            else send_control(client, what, text);
                                          });
  } else {
    channels_->connect(node_channels::scheduler, root);
  }
  heartbeat_ = steady_clock::now();
  channels_->start(
      [this](const sender& from, Message m) {
        Postoffice::Use(&office_);
        on_message(from, std::move(m));
      },
      [this] { tick(); });
}

void Van::network::start(int customer) {
  std::unique_lock lock(mutex_);
  if (channels_ == nullptr) open();
  const auto& s = office_.settings();
  if (!is_scheduler()) {
    join_request r{.client = client_,
                   .role = s.role,
                   .customer = customer,
                   .preferred_rank = s.preferred_rank,
                   .workers = s.workers,
                   .servers = s.servers,
                   .host = me_.hostname,
                   .machine = machine_name(),
                   .addresses = channels_->addresses(),
                   .pid = own_pid(),
                   .started = start_of_process(own_pid())};
    send_control(node_channels::scheduler, Control::ADD_NODE, r.text());
  }
  const auto joined = [&] {
    if (!refused_.empty()) return true;
    if (!ready_ || is_scheduler()) return ready_;
    const auto own = std::ranges::find(processes_, client_, [](const auto& p) { return p.facts.client; });
    return own != processes_.end() &&
           std::ranges::find(own->instances, customer, &instance::customer) != own->instances.end();
  };
  if (!changed_.wait_for(lock, std::chrono::seconds(10), joined)) {
    LOG(INFO) << (is_scheduler() ? "waiting for " : "waiting for the scheduler at ")
              << (is_scheduler() ? std::to_string(s.workers) + " workers and " + std::to_string(s.servers) + " servers"
                                 : root_text(s))
              << (is_scheduler() ? " to join" : ", or for others to join it");
    changed_.wait(lock, joined);
  }
  if (!refused_.empty()) throw paracel::network_error("the scheduler refuses this process: " + refused_, false);
}

void Van::network::stop() {
  std::shared_ptr<node_channels> channels;
  {
    const std::lock_guard lock(mutex_);
    if (channels_ == nullptr || leaving_) return;
    leaving_ = true;
    channels = channels_;
    if (!is_scheduler() && ready_ && refused_.empty() && !finished_)
      send_control(node_channels::scheduler, Control::LEAVE, {});
  }
  channels->stop(std::max(flush_limit, 10 * milliseconds(office_.settings().resend_milliseconds)));
  const std::lock_guard lock(mutex_);
  ready_ = false;
  channels_.reset();
}

// ---- messages

void Van::network::send_control(std::uint64_t client, Control::Command what, const std::string& text) {
  Message m;
  m.meta.control.cmd = what;
  m.meta.sender = me_.id;
  m.meta.body = text;
  channels_->send(client, m);
}

const job_process* Van::network::process_of(int node) const {
  for (const auto& p : processes_)
    for (const auto& i : p.instances)
      if (i.id == node) return &p;
  return nullptr;
}

int Van::network::send(const Message& message) {
  std::uint64_t to = node_channels::scheduler;
  bool local = false;
  std::shared_ptr<node_channels> channels;
  auto m = message;
  {
    const std::lock_guard lock(mutex_);
    CHECK(ready_) << "a message was sent before Start had returned, or after Finalize";
    channels = channels_;
    m.meta.sender = me_.id;
    if (m.meta.request) m.meta.process = static_cast<std::uint32_t>(client_);
    local = message.meta.recver == me_.id;
    if (!local && message.meta.recver == kScheduler && !refused_.empty()) return -1;
    if (!local && message.meta.recver != kScheduler) {
      const auto* p = process_of(message.meta.recver);
      CHECK(p != nullptr) << "there is no node " << message.meta.recver;
      if (!p->gone.empty()) return -1;
      to = p->facts.client;
      local = to == client_;
    }
  }
  PS_VLOG(2) << m.DebugString();
  if (!local) return static_cast<int>(std::min<std::int64_t>(channels->send(to, m), INT32_MAX));
  office_.Deliver(std::move(m));
  return 0;
}

void Van::network::on_message(const sender& from, Message m) {
  try {
    if (!m.meta.control.empty()) on_control(from, m);
    else on_app_message(from, std::move(m));
  } catch (const std::exception& e) {  // not sent by such a program
    LOG(ERROR) << "a message of node " << from.node << " is ignored: " << e.what();
  }
  tell();
}

void Van::network::on_app_message(const sender& from, Message m) {
  {
    const std::lock_guard lock(mutex_);
    // A response to the process that had this id before.
    if (!m.meta.request && m.meta.process != 0 && m.meta.process != static_cast<std::uint32_t>(client_)) return;
    if (from.client == node_channels::scheduler) {
      m.meta.sender = kScheduler;
    } else {
      const auto p = std::ranges::find(processes_, from.client, [](const auto& q) { return q.facts.client; });
      if (p == processes_.end()) {
        // Another node may have received the table before this one.
        if (!is_scheduler() && early_.size() < most_early_messages) early_.emplace_back(from, std::move(m));
        return;
      }
      if (!p->gone.empty()) return;
      m.meta.sender = p->id();
    }
  }
  PS_VLOG(2) << m.DebugString();
  office_.Deliver(std::move(m));
}

void Van::network::on_control(const sender& from, const Message& m) {
  const std::lock_guard lock(mutex_);
  if (is_scheduler()) on_request(from, m);
  else if (from.client == node_channels::scheduler) apply(m.meta.control.cmd, m.meta.body);
}

/// At the scheduler: a request of a node.
void Van::network::on_request(const sender& from, const Message& m) {
  const auto watched = watched_.find(from.client);
  if (watched != watched_.end()) watched->second.heard = steady_clock::now();
  switch (m.meta.control.cmd) {
    case Control::ADD_NODE: {
      const auto r = join_request::in(m.meta.body);
      if (r.client != from.client)
        throw paracel::protocol_error("it joins with a client number that differs from the one it sends with");
      channels_->connect(r.client, address_of(r));
      watched_.try_emplace(r.client,
                           watched_process{.watch = process_watch(r.machine == machine_name() ? r.pid : 0, r.started),
                                           .heard = steady_clock::now(),
                                           .died = {},
                                           .awaits_replacement = false});
      PS_VLOG(1) << "a " << (r.role == Node::WORKER ? "worker" : "server") << " on " << r.host << " joins, pid "
                 << r.pid;
      return table_->join(r);
    }
    case Control::BARRIER: {
      const auto b = barrier_end::in(m.meta.body);
      for (const int customer : b.customers) table_->barrier(from.client, customer, b.group, b.last);
      return;
    }
    case Control::LEAVE:
      watched_.erase(from.client);
      return table_->remove(from.client, "it has left the job", true);
    default:
      return;
  }
}

// ---- messages of the scheduler; the lock is held

void Van::network::apply(Control::Command what, const std::string& text) {
  switch (what) {
    case Control::ADD_NODE:
      apply_table(job_table::in(text));
      break;
    case Control::DEAD:
      apply_loss(text);
      break;
    case Control::BARRIER: {
      const auto end = barrier_end::in(text);
      for (const int customer : end.customers) barrier_ends_[{end.group, customer}].push_back(end.failure);
      break;
    }
    case Control::REFUSED:
      refused_ = text.empty() ? "no reason given" : text;
      break;
    default:
      return;
  }
  changed_.notify_all();
}

/// Where to reach a process from this one.
std::string Van::network::address_of(const join_request& facts) const {
  if (facts.addresses.empty()) throw paracel::protocol_error("a process without an address");
  return facts.machine == machine_name() ? facts.addresses.front() : facts.addresses.back();
}

void Van::network::apply_table(job_table table) {
  if (!is_scheduler() && !scheduler_ && table.scheduler_machine == machine_name())
    scheduler_.emplace(table.scheduler_pid, table.scheduler_started);
  for (const auto& p : table.processes) {
    const auto before = std::ranges::find(processes_, p.id(), [](const auto& q) { return q.id(); });
    const bool is_new = before == processes_.end() || before->facts.client != p.facts.client;
    if (!is_new || !p.gone.empty()) continue;
    if (p.facts.client == client_) {
      me_.id = p.id();
      me_.customer_id = p.instances.front().customer;
      me_.is_recovery = p.replaced && table.started;
      channels_->set_node(me_.id);
      continue;
    }
    if (before != processes_.end()) channels_->disconnect(before->facts.client);
    channels_->connect(p.facts.client, address_of(p.facts));
    if (p.replaced) {
      Node n;
      n.role = p.facts.role;
      n.id = p.id();
      n.hostname = p.facts.host;
      n.is_recovery = true;
      events_.push_back({n, true, {}, p.id()});
    }
  }
  processes_ = std::move(table.processes);
  ready_ = true;
}

void Van::network::apply_loss(const std::string& text) {
  const auto [client, why] = loss::in(text);
  for (auto& p : processes_) {
    if (p.facts.client != client || !p.gone.empty()) continue;
    lose(p, why);
  }
  if (client != client_) return;
  refused_ = "this process was considered dead: " + why;
  for (auto& other : processes_)
    if (other.gone.empty()) lose(other, refused_);
}

void Van::network::lose(job_process& p, const std::string& why) {
  p.gone = why;
  if (p.facts.client != client_) channels_->disconnect(p.facts.client);
  for (const auto& i : p.instances) {
    Node n;
    n.role = p.facts.role;
    n.id = i.id;
    n.hostname = p.facts.host;
    n.customer_id = i.customer;
    events_.push_back({n, false, why, p.id()});
  }
}

/// Without the lock: reports events, and delivers messages that arrived too early.
void Van::network::tell() {
  std::vector<event> events;
  std::vector<std::pair<sender, Message>> early;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
    if (ready_) early.swap(early_);
  }
  for (const auto& e : events) {
    try {
      if (e.joined) office_.OnNodeJoined(e.node);
      else office_.OnNodeLost(e.node, e.first_of_process, e.why);
    } catch (const std::exception& failure) {
      LOG(ERROR) << "the callback for " << e.node.DebugString() << " threw: " << failure.what();
    }
  }
  for (auto& [from, m] : early) on_app_message(from, std::move(m));
}

// ---- barriers and queries

void Van::network::barrier(int customer, int group, bool last) {
  std::unique_lock lock(mutex_);
  CHECK(ready_) << "a barrier was called before Start had returned";
  if (is_scheduler()) table_->barrier(node_channels::scheduler, customer, group, last);
  else send_control(node_channels::scheduler, Control::BARRIER, barrier_end{group, {customer}, {}, last}.text());
  auto& ends = barrier_ends_[{group, customer}];
  changed_.wait(lock, [&] { return !ends.empty() || !refused_.empty(); });
  const auto failure = ends.empty() ? refused_ : ends.front();
  if (!ends.empty()) ends.pop_front();
  if (!failure.empty())
    throw paracel::network_error("barrier of group " + std::to_string(group) + ": " + failure, false);
  finished_ = finished_ || last;
}

std::string Van::network::why_gone(int node) const {
  const std::lock_guard lock(mutex_);
  if (node == kScheduler) return refused_;
  const auto* p = process_of(node);
  return p == nullptr ? "there is no such node" : p->gone;
}

std::vector<int> Van::network::nodes_beside(int node) const {
  const std::lock_guard lock(mutex_);
  std::vector<int> nodes;
  if (const auto* p = process_of(node); p != nullptr)
    for (const auto& i : p->instances) nodes.push_back(i.id);
  return nodes;
}

Van::Van(Postoffice& office, paracel::net::transport* over)
    : office_(office), over_(over), network_(std::make_shared<network>(office, over, starts_)) {}
Van::~Van() = default;

std::shared_ptr<Van::network> Van::current() const {
  const std::lock_guard lock(mutex_);
  return network_;
}

void Van::Start(int customer_id) { current()->start(customer_id); }
void Van::Stop() {
  const auto before = current();
  before->stop();
  const std::lock_guard lock(mutex_);
  network_ = std::make_shared<network>(office_, over_, ++starts_, before->my_node());
}
bool Van::IsReady() const { return current()->ready(); }
Node Van::my_node() const { return current()->my_node(); }
int Van::Send(const Message& message) { return current()->send(message); }
void Van::Barrier(int customer_id, int group, bool last) { current()->barrier(customer_id, group, last); }
std::vector<int> Van::DeadNodes(int seconds) const { return current()->dead_nodes(seconds); }
std::string Van::WhyGone(int node) const { return current()->why_gone(node); }
std::vector<int> Van::NodesBeside(int node) const { return current()->nodes_beside(node); }

}  // namespace ps
