// SPDX-License-Identifier: BSD-3-Clause
//
// Hot partitions move to servers with less to do, while the job runs: as with servers that enter, the new owner first
// gets a replica.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/json_io.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {
namespace {

std::string counted_partitions(std::size_t n) { return std::to_string(n) + " partition" + (n == 1 ? "" : "s"); }

}  // namespace

void scheduler::note_moved(std::size_t partitions) const {
  events_(json_text({{"event", "moved"},
                     {"partitions", partitions},
                     {"text", counted_partitions(partitions)},
                     {"epoch", servers_in_job_.members().epoch}}),
          false);
}

void scheduler::rebalance(time_point now) {
  if (!options_.rebalance || phase_ != phase::running || now < next_rebalance_) return;
  next_rebalance_ = now + options_.measured / 8;
  const auto& members = servers_in_job_.members();
  if (entering_ || !servers_in_job_.may_move() || checkpoints_.in_progress() ||
      members.placed.size() >= options_.most_placed)
    return;
  std::vector<measured_server> measured;
  for (const auto& s : members.servers) {
    if (s.state != server_state::up) continue;
    const auto& n = servers_[s.slot];
    if (!n.is(seat_state::joined) || !n.load || n.load->epoch != members.epoch ||
        n.load->seconds < std::chrono::duration<double>(options_.measured).count())
      return;
    measured.push_back({s.slot, s.weight, s.threads, *n.load});
  }
  auto moves = rebalancer_.consider(measured, now);
  if (moves.empty()) return;
  char text[128];
  std::snprintf(text, sizeof text, "%s: the busiest thread of a server has %.2f times its fair share",
                counted_partitions(moves.size()).c_str(), rebalancer::imbalance(measured));
  const auto count = moves.size();
  servers_in_job_.move(std::move(moves));
  events_(json_text({{"event", "moving"}, {"partitions", count}, {"text", text}, {"epoch", members.epoch}}), false);
  broadcast_membership();
}

}  // namespace paracel::srv
