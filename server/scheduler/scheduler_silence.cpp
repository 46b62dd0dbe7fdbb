// SPDX-License-Identifier: BSD-3-Clause
//
// Detects silence: of nodes, of those that have not joined, and of the scheduler itself, when it was suspended.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {
namespace {

// mpirun reports the rank whose death made it end the others about 1.1 s after it has told them to exit (measured,
// 4.1.4).
constexpr std::chrono::milliseconds early_leave_grace{1500};

std::string seconds(std::chrono::milliseconds t) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f s", static_cast<double>(t.count()) / 1000.0);
  return out;
}

}  // namespace

std::string scheduler::missing() const {
  std::string text;
  std::size_t left_out = 0;
  const auto list = [&](const std::vector<seat>& nodes, const char* prefix) {
    std::size_t named = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].has_joined()) continue;
      if (named++ < 8) text += (text.empty() ? "" : ", ") + std::string(prefix) + std::to_string(i);
      else ++left_out;
    }
  };
  list(servers_, "server s");
  list(workers_, "worker ");
  if (left_out != 0) text += " and " + std::to_string(left_out) + " more";
  return text;
}

void scheduler::tick(time_point now) {
  commands_.tick(now);
  if (phase_ == phase::done || phase_ == phase::aborted) return;
  checkpoints_.tick(servers_in_job_.members(), now);
  if (now - last_progress_ >= progress_interval) emit_progress(now);
  if (phase_ == phase::running && now >= next_sample_) emit_sample(now);
  const auto look = [&](role r, std::vector<seat>& nodes) {
    const bool has_lease = r == role::server && servers_in_job_.has_replicas();
    const auto limit = has_lease ? std::min(options_.lease_limit, options_.heartbeat_limit) : options_.heartbeat_limit;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const auto& n = nodes[i];
      if (!n.is_present() || !n.last_sign || now - *n.last_sign <= limit) continue;
      const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - *n.last_sign);
      on_loss(r, i, "no heartbeat for " + seconds(silent), now);
    }
  };
  look(role::server, servers_);
  look(role::worker, workers_);
  check_awaited(now);
  check_removals(now);
  rebalance(now);
  if (entering_ && now - entering_->second > options_.join_limit)
    give_up_entering("it did not join within " + seconds(options_.join_limit));
  if (left_early_ && now - left_early_->second > early_leave_grace)
    abort(exit_status::server_lost, name(role::server, left_early_->first) + " left before the workers had finished",
          now);
  if (phase_ == phase::joining && now - joining_since_ > options_.join_limit && !checkpoints_.restoring())
    abort(exit_status::timeout,
          "the job did not start within " + seconds(options_.join_limit) + ": " + missing() + " did not join", now);
}

void scheduler::was_away(time_point::duration missed, time_point now) {
  for (auto* nodes : {&servers_, &workers_}) {
    for (auto& n : *nodes) {
      if (n.last_sign) n.last_sign = now;
      n.lost_at += missed;
    }
  }
  if (entering_) entering_->second += missed;
  if (left_early_) left_early_->second += missed;
  joining_since_ += missed;
  ended_at_ += missed;
  checkpoints_.was_away(missed);
  removals_.was_away(missed);
  commands_.was_away(missed);
}

bool scheduler::all_notified(time_point now) const noexcept {
  if (phase_ != phase::done && phase_ != phase::aborted) return false;
  if (now - ended_at_ > options_.heartbeat_limit) return true;
  const auto knows = [](const seat& n) { return n.is_gone(); };
  for (std::uint32_t slot = 0; slot < servers_.size(); ++slot)
    if (!knows(servers_[slot]) && !is_entering(slot)) return false;
  return std::ranges::all_of(workers_, knows);
}

}  // namespace paracel::srv
