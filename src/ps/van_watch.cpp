// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <mutex>
#include <sstream>
#include <vector>

#include "ps/base.h"
#include "ps/van_network.hpp"

namespace ps {

void Van::network::tick() {
  Postoffice::Use(&office_);
  const auto now = steady_clock::now();
  const auto& s = office_.settings();
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    // While this process was suspended, alone or with all others, it heard from none of them.
    if (const auto away = attention_.absence(now); away > steady_clock::duration::zero()) {
      for (auto& [client, w] : watched_) w.heard += away;
      channels_->was_away(away);
    }
    const auto interval = std::chrono::duration<double>(s.heartbeat_seconds);
    if (is_scheduler()) {
      watch_processes(now);
    } else if (channels_->has_answered(node_channels::scheduler) && s.heartbeat_seconds > 0 &&
               now - heartbeat_ >= interval) {
      heartbeat_ = now;
      send_control(node_channels::scheduler, Control::HEARTBEAT, {});
    }
    if (!is_scheduler()) watch_scheduler();
  }
  tell();
}

/// The job ends without a scheduler: deaths could not be detected any more. One that was not there yet is waited for.
void Van::network::watch_scheduler() {
  const auto& s = office_.settings();
  if (!channels_->has_answered(node_channels::scheduler) || !refused_.empty() || finished_) return;
  std::ostringstream why;
  const std::chrono::duration<double> silence = channels_->unacknowledged(node_channels::scheduler);
  if (scheduler_ && scheduler_->has_ended()) why << "the scheduler has ended";
  else if (s.heartbeat_timeout > 0 && silence.count() > s.heartbeat_timeout)
    why << "the scheduler has not answered for " << s.heartbeat_timeout << " s";
  else return;
  refused_ = why.str();
  for (auto& p : processes_)
    if (p.gone.empty()) lose(p, refused_);
  Node n;
  n.role = Node::SCHEDULER;
  n.id = kScheduler;
  events_.push_back({n, false, refused_, kScheduler});
  changed_.notify_all();
}

/// The kernel reports the end of processes on this machine; others are judged by their silence.
void Van::network::watch_processes(steady_clock::time_point now) {
  const auto& s = office_.settings();
  if (table_->over()) return;
  for (auto& [client, w] : watched_) {
    if (w.awaits_replacement) {
      const auto* p = table_->find(client);
      const bool replaced = p == nullptr || p->gone.empty();
      if (!replaced && now - w.died < std::chrono::duration<double>(s.replacement_seconds)) continue;
      w.awaits_replacement = false;
      if (!replaced) table_->give_up(client);
      continue;
    }
    const auto* p = table_->find(client);
    if (p == nullptr || !p->gone.empty()) continue;
    std::ostringstream why;
    if (w.watch.has_ended()) why << "its process (pid " << p->facts.pid << ") has ended";
    else if (s.heartbeat_timeout > 0 && s.heartbeat_seconds > 0 &&
             now - w.heard > std::chrono::duration<double>(s.heartbeat_timeout))
      why << "no heartbeat for " << s.heartbeat_timeout << " s";
    else continue;
    w.died = now;
    w.awaits_replacement = true;
    table_->remove(client, why.str(), false);
    if (s.replacement_seconds <= 0) {
      w.awaits_replacement = false;
      table_->give_up(client);
    }
  }
  std::erase_if(watched_, [&](const auto& w) { return table_->find(w.first) == nullptr; });
}

std::vector<int> Van::network::dead_nodes(int seconds) const {
  const std::lock_guard lock(mutex_);
  std::vector<int> nodes;
  const auto now = steady_clock::now();
  for (const auto& p : processes_) {
    const auto w = watched_.find(p.facts.client);
    const bool silent = w != watched_.end() && p.gone.empty() && now - w->second.heard > std::chrono::seconds(seconds);
    if (p.gone.empty() && !silent) continue;
    for (const auto& i : p.instances) nodes.push_back(i.id);
  }
  return nodes;
}

}  // namespace ps
