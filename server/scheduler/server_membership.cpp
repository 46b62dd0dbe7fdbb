// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/server_membership.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.hpp"
#include "core/ring.hpp"

namespace paracel::srv {

server_membership::server_membership(std::uint64_t job, std::uint32_t workers, std::uint32_t servers,
                                     std::uint32_t replicas, bool elastic)
    : synced_(servers), synced_epoch_(members_.epoch), replicas_(std::min(replicas, servers)) {
  members_.job = job;
  members_.workers = workers;
  members_.replicas = replicas;
  members_.elastic = elastic;
  members_.servers.resize(servers);
}

void server_membership::enter(server_entry s) {
  const auto slot = s.slot;
  changing().servers[slot] = std::move(s);
}

void server_membership::refuse(refused_function f) {
  constexpr std::size_t longest_reason = 1000;  // below the limit of a membership
  if (f.why.size() > longest_reason) f.why.resize(longest_reason);
  if (members_.refused.size() < membership::most_refused) changing().refused.push_back(std::move(f));
}

std::uint32_t server_membership::up() const noexcept {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(members_.servers, [](const auto& s) { return s.state == server_state::up; }));
}

server_membership::verdict server_membership::server_lost(std::uint32_t slot) {
  auto& s = changing().servers[slot];
  if (s.state == server_state::down || s.state == server_state::gone) return {.continues = true};
  if (may_head(s.state)) {
    if (spare() == 0) {
      if (lost_ == 0) return {false, "there is no other replica of its partitions"};
      return {false, "lost before the replicas of s" + std::to_string(last_lost_) + "'s partitions were restored"};
    }
    ++lost_;
    last_lost_ = slot;
  }
  const bool on_ring = s.state != server_state::entering && s.state != server_state::left;
  s.state = on_ring ? server_state::down : server_state::gone;
  std::erase_if(members_.moving, [&](const placement& p) { return p.slot == slot; });
  ++members_.epoch;
  return {.continues = true};
}

void server_membership::rejoin(server_entry s) {
  const auto slot = s.slot;
  s.state = server_state::joining;
  synced_[slot] = 0;
  changing().servers[slot] = std::move(s);
  ++members_.epoch;
}

std::string server_membership::why_not_resize(int by) const {
  if (!may_change()) {
    return "that needs a job that was started with --replicas 2 or more, or with --elastic";
  }
  for (const auto& s : members_.servers) {
    if (s.state == server_state::up || s.state == server_state::down || s.state == server_state::gone) continue;
    return "one change at a time: s" + std::to_string(s.slot) + " is " +
           (s.state == server_state::left ? "still ending" : name_of(s.state));
  }
  if (!members_.moving.empty()) return "partitions are moving: try again";
  if (!settled()) return "the replicas are not complete yet: try again";
  if (by > 0 && free_slot() >= ring::most_members) return "there are already as many servers as possible";
  if (by < 0 && up() == 1) return "the last server cannot leave";
  if (by < 0 && up() <= members_.replicas) {
    return std::to_string(members_.replicas) + " replicas need as many servers, and there are " + std::to_string(up());
  }
  return {};
}

std::uint32_t server_membership::free_slot() const noexcept {
  const auto at = std::ranges::find(members_.servers, server_state::gone, &server_entry::state);
  return static_cast<std::uint32_t>(at - members_.servers.begin());
}

void server_membership::admit(server_entry s) {
  const auto slot = s.slot;
  s.state = server_state::entering;
  if (slot >= members_.servers.size()) {
    members_.servers.resize(slot + 1);
    synced_.resize(slot + 1);
  }
  synced_[slot] = 0;
  changing().servers[slot] = std::move(s);
  ++members_.epoch;
}

std::uint32_t server_membership::dismiss() {
  PARACEL_CHECK(up() != 0);  // why_not_resize
  auto slot = members_.servers.size() - 1;
  while (members_.servers[slot].state != server_state::up) --slot;
  changing().servers[slot].state = server_state::leaving;
  ++members_.epoch;
  return static_cast<std::uint32_t>(slot);
}

bool server_membership::may_move() const noexcept {
  return may_change() && settled() && std::ranges::all_of(members_.servers, [](const auto& s) {
           return s.state == server_state::up || s.state == server_state::gone;
         });
}

void server_membership::move(std::vector<placement> where) {
  PARACEL_CHECK(may_move());
  for (const auto& p : where) PARACEL_CHECK(state(p.slot) == server_state::up);
  changing().moving = std::move(where);
  ++members_.epoch;
}

/// A placement where the ring has the partition anyway is none, and neither is one at a server that is gone.
void server_membership::place_moved() {
  auto& m = changing();
  std::map<std::uint16_t, std::uint32_t> slots;
  for (const auto* list : {&m.placed, &m.moving})
    for (const auto& p : *list) slots[p.partition] = p.slot;
  std::vector<ring_member> on_ring;
  for (const auto& s : m.servers)
    if (s.state != server_state::left && s.state != server_state::gone)
      on_ring.push_back({s.slot, s.weight, s.threads});
  const ring owners(on_ring);
  m.moving.clear();
  m.placed.clear();
  for (const auto& [partition, slot] : slots)
    if (owners.owner(partition) != slot && std::ranges::find(on_ring, slot, &ring_member::slot) != on_ring.end())
      m.placed.push_back({partition, slot});
}

server_membership::news server_membership::synced(std::uint32_t slot, std::uint32_t epoch) {
  PARACEL_CHECK(slot < synced_.size());
  synced_[slot] = std::max(synced_[slot], std::min(epoch, members_.epoch));
  if (settled()) return news::none;
  for (const auto& s : members_.servers)
    if (may_head(s.state) && synced_[s.slot] != members_.epoch) return news::none;
  synced_epoch_ = members_.epoch;
  bool changed = false;
  for (auto& s : changing().servers) {
    if (s.state != server_state::joining && s.state != server_state::entering) continue;
    s.state = server_state::up;
    changed = true;
  }
  // A leaving server stays as long as too few would remain up without it, because another one is down.
  for (auto& s : members_.servers) {
    if (s.state != server_state::leaving || up() < members_.replicas) continue;
    s.state = server_state::left;
    // Another server may get its slot, and not what was hot here.
    std::erase_if(members_.placed, [&](const placement& p) { return p.slot == s.slot; });
    changed = true;
  }
  if (!members_.moving.empty()) {
    place_moved();
    changed = true;
  }
  const auto serving = std::ranges::count_if(members_.servers, [](const auto& s) { return may_head(s.state); });
  replicas_ = std::min(members_.replicas, static_cast<std::uint32_t>(serving));
  lost_ = 0;
  if (!changed) {
    for (auto& s : members_.servers)
      if (s.state == server_state::left) s.state = server_state::gone;
    return news::synced;
  }
  ++members_.epoch;
  return news::serves;
}

}  // namespace paracel::srv
