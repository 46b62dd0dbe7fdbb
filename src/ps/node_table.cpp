// SPDX-License-Identifier: BSD-3-Clause
#include "ps/node_table.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <paracel/error.hpp>

#include "ps/base.h"
#include "ps/internal/postoffice.h"

namespace paracel::ps_compat {

namespace {

using nlohmann::json;
using ::ps::Control;
using ::ps::Node;
using ::ps::Postoffice;

const char* role_word(Node::Role r) {
  return r == Node::SERVER ? "server" : r == Node::WORKER ? "worker" : "scheduler";
}

Node::Role role_in(const json& j) {
  const auto role = j.get<int>();
  if (role != Node::SERVER && role != Node::WORKER) throw protocol_error("an unknown role");
  return static_cast<Node::Role>(role);
}

/// Runs `read` on the JSON document of a message. Throws: protocol_error for one that `read` does not accept.
template <class Read>
auto read_json(const std::string& text, Read read) {
  try {
    return read(json::parse(text));
  } catch (const json::exception& e) {
    throw protocol_error(std::string("malformed control message: ") + e.what());
  }
}

/// Texts of other programs need not be UTF-8.
std::string dumped(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

json json_of(const join_request& r) {
  return {{"client", r.client},
          {"role", static_cast<int>(r.role)},
          {"customer", r.customer},
          {"rank", r.preferred_rank},
          {"workers", r.workers},
          {"servers", r.servers},
          {"host", r.host},
          {"machine", r.machine},
          {"pid", r.pid},
          {"started", r.started},
          {"addresses", r.addresses}};
}

join_request join_in(const json& j) {
  join_request r;
  r.client = j.at("client").get<std::uint64_t>();
  r.role = role_in(j.at("role"));
  r.customer = j.at("customer").get<int>();
  r.preferred_rank = j.at("rank").get<int>();
  r.workers = j.at("workers").get<int>();
  r.servers = j.at("servers").get<int>();
  r.host = j.at("host").get<std::string>();
  r.machine = j.at("machine").get<std::string>();
  r.pid = j.at("pid").get<std::int64_t>();
  r.started = j.at("started").get<std::uint64_t>();
  r.addresses = j.at("addresses").get<std::vector<std::string>>();
  return r;
}

}  // namespace

std::string join_request::text() const { return dumped(json_of(*this)); }

join_request join_request::in(const std::string& text) {
  return read_json(text, [](const json& j) { return join_in(j); });
}

std::string job_table::text() const {
  auto all = json::array();
  for (const auto& p : processes) {
    auto instances = json::array();
    for (const auto& i : p.instances) instances.push_back({i.id, i.customer});
    all.push_back({{"facts", json_of(p.facts)}, {"instances", instances}, {"gone", p.gone}, {"replaced", p.replaced}});
  }
  return dumped({{"processes", all},
                 {"machine", scheduler_machine},
                 {"pid", scheduler_pid},
                 {"scheduler_started", scheduler_started},
                 {"started", started}});
}

job_table job_table::in(const std::string& text) {
  return read_json(text, [](const json& j) {
    job_table t;
    t.scheduler_machine = j.at("machine").get<std::string>();
    t.scheduler_pid = j.at("pid").get<std::int64_t>();
    t.scheduler_started = j.at("scheduler_started").get<std::uint64_t>();
    t.started = j.at("started").get<bool>();
    for (const auto& one : j.at("processes")) {
      job_process p;
      p.facts = join_in(one.at("facts"));
      for (const auto& i : one.at("instances")) p.instances.push_back({i.at(0).get<int>(), i.at(1).get<int>()});
      p.gone = one.at("gone").get<std::string>();
      p.replaced = one.at("replaced").get<bool>();
      t.processes.push_back(std::move(p));
    }
    return t;
  });
}

std::string barrier_end::text() const {
  return dumped({{"group", group}, {"customers", customers}, {"failure", failure}, {"last", last}});
}

barrier_end barrier_end::in(const std::string& text) {
  return read_json(text, [](const json& j) {
    return barrier_end{j.at("group").get<int>(), j.at("customers").get<std::vector<int>>(),
                       j.at("failure").get<std::string>(), j.at("last").get<bool>()};
  });
}

std::string loss::text() const { return dumped({{"client", client}, {"why", why}}); }

loss loss::in(const std::string& text) {
  return read_json(text, [](const json& j) {
    return loss{j.at("client").get<std::uint64_t>(), j.at("why").get<std::string>()};
  });
}

node_table::node_table(int workers, int servers, job_table scheduler, send_function send)
    : workers_(workers), servers_(servers), send_(std::move(send)), table_(std::move(scheduler)) {}

const job_process* node_table::find(std::uint64_t client) const {
  const auto at = std::ranges::find(table_.processes, client, [](const auto& p) { return p.facts.client; });
  return at == table_.processes.end() ? nullptr : &*at;
}

/// Why a process cannot join; empty: it can.
std::string node_table::refusal(const join_request& r) const {
  if (r.workers != workers_ || r.servers != servers_)
    return "it was started for " + std::to_string(r.workers) + " workers and " + std::to_string(r.servers) +
           " servers, the scheduler for " + std::to_string(workers_) + " and " + std::to_string(servers_) +
           ": DMLC_NUM_WORKER and DMLC_NUM_SERVER must be the same everywhere";
  const int most = r.role == Node::WORKER ? workers_ : servers_;
  int there = 0, dead = 0;
  for (const auto& p : table_.processes) {
    if (p.facts.role != r.role) continue;
    if (p.facts.client == r.client && !p.gone.empty()) return "it was considered dead: " + p.gone;
    if (p.gone.empty()) there += static_cast<int>(p.instances.size());
    else if (!p.left) dead += static_cast<int>(p.instances.size());
  }
  if (there >= most || (complete_ && dead == 0))
    return "all " + std::to_string(most) + " " + role_word(r.role) + "s have joined already";
  return {};
}

void node_table::join(const join_request& r) {
  auto at = std::ranges::find(table_.processes, r.client, [](const auto& p) { return p.facts.client; });
  if (at != table_.processes.end() && at->gone.empty() &&
      std::ranges::find(at->instances, r.customer, [](const auto& i) { return i.customer; }) != at->instances.end())
    return;  // it has already joined
  if (const auto why = refusal(r); !why.empty()) return send_(r.client, Control::REFUSED, why);
  if (complete_) {
    // It replaces one that died, preferably one with this customer.
    const auto dead = [&](const job_process& p) { return p.facts.role == r.role && !p.gone.empty() && !p.left; };
    auto place = std::ranges::find_if(
        table_.processes, [&](const auto& p) { return dead(p) && p.instances.front().customer == r.customer; });
    if (place == table_.processes.end()) place = std::ranges::find_if(table_.processes, dead);
    const auto before = place->facts.client;
    place->facts = r;
    place->gone.clear();
    place->replaced = true;
    std::erase(given_up_, before);
    return broadcast(Control::ADD_NODE, table_.text());
  }
  if (at == table_.processes.end()) {
    table_.processes.push_back({.facts = r, .instances = {}, .gone = {}, .left = false, .replaced = false});
    at = std::prev(table_.processes.end());
  }
  at->instances.push_back({0, r.customer});
  std::size_t instances = 0;
  for (const auto& p : table_.processes) instances += p.gone.empty() ? p.instances.size() : 0;
  if (instances == static_cast<std::size_t>(workers_ + servers_)) complete_job();
}

/// Ranks follow DMLC_RANK where it is given, then the order of joining.
void node_table::complete_job() {
  complete_ = true;
  std::erase_if(table_.processes, [](const auto& p) { return !p.gone.empty(); });
  std::ranges::stable_sort(table_.processes, {}, [](const auto& p) {
    return p.facts.preferred_rank < 0 ? INT32_MAX : p.facts.preferred_rank;
  });
  int workers = 0, servers = 0;
  for (auto& p : table_.processes)
    for (auto& i : p.instances)
      i.id =
          p.facts.role == Node::WORKER ? Postoffice::WorkerRankToID(workers++) : Postoffice::ServerRankToID(servers++);
  broadcast(Control::ADD_NODE, table_.text());
}

void node_table::broadcast(Control::Command what, const std::string& text) {
  send_(0, what, text);
  for (const auto& p : table_.processes)
    if (p.gone.empty()) send_(p.facts.client, what, text);
}

void node_table::remove(std::uint64_t client, const std::string& why, bool left) {
  const auto at = std::ranges::find(table_.processes, client, [](const auto& p) { return p.facts.client; });
  if (over_ || at == table_.processes.end() || !at->gone.empty()) return;
  if (!left) send_(client, Control::DEAD, loss{client, why}.text());  // it may be alive after all
  at->gone = why;
  at->left = left;
  for (auto& [group, all] : barriers_) std::erase_if(all, [&](const auto& w) { return w.client == client; });
  if (!complete_) return;  // another may still take its place
  broadcast(Control::DEAD, loss{client, why}.text());
  if (left) give_up(client);
}

void node_table::give_up(std::uint64_t client) {
  given_up_.push_back(client);
  std::vector<int> groups;
  for (const auto& [group, all] : barriers_) groups.push_back(group);
  for (const int group : groups) settle_barrier(group);
}

bool node_table::in_group(const job_process& p, int group) const {
  if (group < 8) return (group & (p.facts.role == Node::WORKER ? ::ps::kWorkerGroup : ::ps::kServerGroup)) != 0;
  return std::ranges::find(p.instances, group, [](const auto& i) { return i.id; }) != p.instances.end();
}

void node_table::barrier(std::uint64_t client, int customer, int group, bool last) {
  barriers_[group].push_back({client, customer, last});
  settle_barrier(group);
}

void node_table::settle_barrier(int group) {
  auto& all = barriers_[group];
  if (all.empty()) return;
  std::size_t wanted = (group < 8 && (group & ::ps::kScheduler) != 0) ? 1 : 0;
  barrier_end end{.group = group, .customers = {}, .failure = {}, .last = false};
  for (const auto& p : table_.processes) {
    if (!in_group(p, group)) continue;
    wanted += p.instances.size();
    const bool given_up = std::ranges::find(given_up_, p.facts.client) != given_up_.end();
    if (given_up && end.failure.empty())
      end.failure = std::string(role_word(p.facts.role)) + " " + std::to_string(Postoffice::IDtoRank(p.id())) +
                    " (node " + std::to_string(p.id()) + "): " + p.gone;
  }
  if (end.failure.empty() && all.size() < wanted) return;
  const auto called = std::exchange(all, {});
  over_ = end.failure.empty() && std::ranges::all_of(called, &waiting::last);
  table_.started =
      table_.started || (end.failure.empty() && group == ::ps::kScheduler + ::ps::kServerGroup + ::ps::kWorkerGroup);
  std::vector<std::uint64_t> clients;
  for (const auto& w : called)
    if (std::ranges::find(clients, w.client) == clients.end()) clients.push_back(w.client);
  for (const auto client : clients) {
    end.customers.clear();
    for (const auto& w : called)
      if (w.client == client) end.customers.push_back(w.customer);
    send_(client, Control::BARRIER, end.text());
  }
}

}  // namespace paracel::ps_compat
