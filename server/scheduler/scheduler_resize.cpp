// SPDX-License-Identifier: BSD-3-Clause
//
// Servers that enter and leave a running job, and when the replicas they need are complete.
#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {
using nlohmann::json;

void scheduler::on_synced(std::uint32_t slot, std::uint64_t epoch) {
  std::vector<std::pair<std::uint32_t, server_state>> moving;
  for (const auto& s : servers_in_job_.members().servers) {
    if (s.state == server_state::entering || s.state == server_state::left || s.state == server_state::joining ||
        s.state == server_state::leaving)
      moving.emplace_back(s.slot, s.state);
  }
  const auto partitions = servers_in_job_.members().moving.size();
  const auto news =
      servers_in_job_.synced(slot, static_cast<std::uint32_t>(std::min<std::uint64_t>(epoch, ~std::uint32_t{0})));
  if (news == server_membership::news::none) return;
  const bool serves = news == server_membership::news::serves;
  const bool others =
      std::ranges::any_of(moving, [&](const auto& m) { return servers_in_job_.state(m.first) != m.second; });
  if (serves && partitions != 0) note_moved(partitions);
  if (!serves || others || partitions == 0)
    events_(json_text({{"event", serves ? "serving" : "synced"}, {"epoch", servers_in_job_.members().epoch}}), false);
  for (const auto& [moved, was] : moving) {
    const auto is = servers_in_job_.state(moved);
    if (is == was) continue;
    note_change(role::server, moved);
    if (was != server_state::entering && was != server_state::left) continue;
    const auto& n = servers_[moved];
    events_(json_text({{"event", is == server_state::gone ? "retired" : "entered"},
                       {"index", moved},
                       {"pid", n.holder.pid},
                       {"host", n.holder.host},
                       {"epoch", servers_in_job_.members().epoch}}),
            false);
  }
  if (!serves) return;
  checkpoints_.servers_changed("the servers changed meanwhile");
  broadcast_membership();
}

void scheduler::resize(const net::request_view& in, completion& done, time_point now) {
  const auto body = json_from(net::text_of(in.body));
  const auto wish = body.is_object() ? body.value("servers", json()) : json();
  if (wish != 1 && wish != -1) throw refusal("\"servers\" must be 1 or -1: one server at a time");
  const int by = wish == 1 ? 1 : -1;
  if (phase_ != phase::running)
    throw refusal(phase_ == phase::joining ? "the job has not started yet" : "the job is done");
  if (entering_) throw refusal("one change at a time: s" + std::to_string(entering_->first) + " is being started");
  if (const auto why = servers_in_job_.why_not_resize(by); !why.empty()) throw refusal(why);
  std::uint32_t slot = 0;
  if (by > 0) {
    slot = servers_in_job_.free_slot();
    entering_.emplace(slot, now);
    if (slot == servers_.size()) servers_.emplace_back();
    options_.servers = static_cast<std::uint32_t>(servers_.size());
    events_(json_text({{"event", "wanted"}, {"index", slot}}), false);
  } else {
    slot = servers_in_job_.dismiss();
    const auto& n = servers_[slot];
    events_(json_text({{"event", "leaving"},
                       {"index", slot},
                       {"pid", n.holder.pid},
                       {"host", n.holder.host},
                       {"epoch", servers_in_job_.members().epoch}}),
            false);
    checkpoints_.servers_changed("server s" + std::to_string(slot) + " is leaving");
    broadcast_membership();
    note_change(role::server, slot);
  }
  const auto answer = json_text({{"slot", slot}, {"epoch", servers_in_job_.members().epoch}});
  done.answer({}, net::bytes_of(answer));
}

/// The server that was to be started will not join.
void scheduler::give_up_entering(const std::string& why) {
  const auto slot = std::exchange(entering_, std::nullopt)->first;
  events_(json_text({{"event", "not_entered"}, {"index", slot}, {"cause", why}}), false);
  if (slot >= servers_in_job_.members().servers.size()) servers_.pop_back();
  options_.servers = static_cast<std::uint32_t>(servers_.size());
}

}  // namespace paracel::srv
