// SPDX-License-Identifier: BSD-3-Clause
//
// The output of `prun.py status`:
//
//   {"job","phase","seconds","status","cause","epoch","progress",
//    "servers":[{"slot","state","pid","host","incarnation","threads","memory_bytes","resident_bytes",
//                "silent","cause","usage","load"}],
//    "workers":[{"rank","state","pid","host","clock","silent","cause","usage"}],
//    "losses":[{"cause","seconds" since then}]}
//
// state: "missing" (has not joined), "up", "gone"; of a server also "down", "joining", "entering", "leaving" and
// "left", of a worker "ejected", "awaited" and "catching up". silent: seconds since its last heartbeat; omitted before
// the first. memory_bytes: of its keys and rows, resident_bytes: of its process, both at its last heartbeat. cause: of
// its loss. usage, load (server_load.hpp): of its last heartbeat. With replicas also "replicas" and "spare", the losses
// that can be tolerated now; when servers can change, "settled": all replicas are complete, and no node awaits another
// membership; and how many partitions are "placed" where the ring does not have them, and are "moving".
#include "server/scheduler/scheduler.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"

namespace paracel::srv {

using nlohmann::json;

std::string scheduler::state_of(role r, std::uint32_t index) const {
  if (const auto is = servers_in_job_.state(index); r == role::server && is != server_state::up)
    return is_entering(index) ? "missing" : name_of(is);
  switch (at(r, index).state()) {
    case seat_state::expected:
      return "missing";
    case seat_state::joined:
    case seat_state::blocked:
      return "up";
    case seat_state::awaited:
      return "awaited";
    case seat_state::catching_up:
      return "catching up";
    case seat_state::ejected:
      return "ejected";
    case seat_state::lost:
    case seat_state::left:
      break;
  }
  return "gone";
}

std::string scheduler::report(time_point now) const {
  const auto seconds_since = [now](time_point then) { return std::chrono::duration<double>(now - then).count(); };
  const auto about = [&](role r, std::uint32_t index) {
    const auto& n = at(r, index);
    json j{{"state", state_of(r, index)}};
    if (!n.has_joined()) return j;
    j["pid"] = n.holder.pid;
    j["host"] = n.holder.host;
    if (n.last_sign && n.is_present()) j["silent"] = seconds_since(*n.last_sign);
    if (n.is_gone() && !n.cause.empty()) j["cause"] = n.cause;
    if (!n.usage.empty()) j["usage"] = json::parse(n.usage, nullptr, false);
    return j;
  };
  json servers = json::array();
  for (std::uint32_t slot = 0; slot < servers_.size(); ++slot) {
    auto j = about(role::server, slot);
    j["slot"] = slot;
    if (servers_[slot].has_joined()) {
      const auto& entry = servers_in_job_.at(slot);
      j["incarnation"] = to_hex(entry.incarnation);
      j["threads"] = entry.threads;
      const auto& n = servers_[slot];
      if (n.resident_bytes != 0 && n.is_present()) {
        j["memory_bytes"] = n.memory_bytes;
        j["resident_bytes"] = n.resident_bytes;
      }
      if (n.load && n.is_present()) j["load"] = n.load->to_json();
    }
    servers.push_back(std::move(j));
  }
  json workers = json::array();
  for (std::uint32_t rank = 0; rank < workers_.size(); ++rank) {
    auto j = about(role::worker, rank);
    j["rank"] = rank;
    j["clock"] = workers_[rank].clock;
    workers.push_back(std::move(j));
  }
  constexpr const char* phases[] = {"joining", "running", "done", "aborted"};
  json all{{"job", to_hex(options_.job)},      {"phase", phases[static_cast<std::size_t>(phase_)]},
           {"seconds", seconds_since(begin_)}, {"epoch", servers_in_job_.members().epoch},
           {"servers", std::move(servers)},    {"workers", std::move(workers)}};
  for (const auto& [when, cause] : losses_)
    all["losses"].push_back({{"cause", cause}, {"seconds", seconds_since(when)}});
  if (servers_in_job_.has_replicas()) {
    all["replicas"] = servers_in_job_.members().replicas;
    // Until all have joined, the death of any server ends the job.
    all["spare"] = phase_ == phase::running ? servers_in_job_.spare() : 0;
  }
  if (servers_in_job_.may_change()) {
    all["settled"] = servers_in_job_.settled();
    all["placed"] = servers_in_job_.members().placed.size();
    all["moving"] = servers_in_job_.members().moving.size();
  }
  if (phase_ == phase::aborted) {
    all["status"] = status_;
    all["cause"] = cause_;
  }
  const auto& progress = held_progress_.empty() ? last_passed_on_ : held_progress_;
  if (!progress.empty()) all["progress"] = json::parse(progress, nullptr, false);
  // a host name need not be UTF-8
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

// ---- samples: what every process has used, for the curves of a report

/// {"event":"sample","servers":[..],"workers":[..]}: an object for each process that takes part and has sent a
/// heartbeat with "usage", with its number, a worker's clock, and a server's memory. A launcher that does not keep up
/// misses some.
void scheduler::emit_sample(time_point now) {
  constexpr std::chrono::milliseconds interval{1000};
  constexpr std::chrono::milliseconds a_process{
      20};  // so that a thousand processes send no more than 50 of these a second
  next_sample_ = now + std::max(interval, a_process * static_cast<int>(servers_.size() + workers_.size()));
  std::string text;
  bool found = false;
  const auto add = [&](const char* name, const std::vector<seat>& nodes, auto&& more) {
    text += std::string(text.empty() ? R"({"event":"sample",")" : R"(,")") + name + "\":[";
    bool first = true;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto& n = nodes[i];
      if (n.usage.empty() || !n.is_present()) continue;
      text += std::string(std::exchange(first, false) ? "" : ",") + R"({"index":)" + std::to_string(i) + more(n) +
              R"(,"usage":)" + n.usage + "}";
      found = true;
    }
    text += "]";
  };
  add("servers", servers_, [](const seat& n) {
    return R"(,"memory_bytes":)" + std::to_string(n.memory_bytes) + R"(,"resident_bytes":)" +
           std::to_string(n.resident_bytes);
  });
  add("workers", workers_, [](const seat& n) { return R"(,"clock":)" + std::to_string(n.clock); });
  if (found) events_(text + "}", true);
}

/// What a process has used in all, when it leaves.
void scheduler::emit_usage(role r, std::uint32_t index, const json& body) {
  auto usage = counters_in(body, "usage");
  if (usage.empty()) return;
  at(r, index).usage = std::move(usage);
  if (auto metrics = counters_in(body, "metrics"); !metrics.empty()) at(r, index).metrics = std::move(metrics);
  json event{{"event", "usage"}, {"role", r == role::server ? "server" : "worker"}, {"index", index}};
  for (const char* key : {"clock", "memory_bytes", "resident_bytes"})
    if (const auto it = body.find(key); it != body.end() && it->is_number_unsigned()) event[key] = *it;
  event["usage"] = body["usage"];
  events_(json_text(event), false);
}

}  // namespace paracel::srv
