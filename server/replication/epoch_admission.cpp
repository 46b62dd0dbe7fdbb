// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/epoch_admission.hpp"

#include <algorithm>

#include "server/request/verb_rules.hpp"

namespace paracel::srv {

using net::verb;

epoch_admission::verdict epoch_admission::judge(const net::request_header& h, bool is_synced) const {
  // A request of a later epoch waits: its reply could be held, and then be refused with a membership that its sender
  // already has.
  if (h.epoch > context_.epoch) return verdict::park;
  const auto* rule = rule_of(context_.options.at, h.what);
  if (rule != nullptr && rule->when != epoch_rule::current) return verdict::serve;
  const bool of_chains = h.what == verb::replicate || h.what == verb::handover;
  if (context_.view == nullptr) return of_chains ? verdict::refuse_no_peer : verdict::serve;
  if (h.epoch < context_.epoch) return verdict::refuse_stale;
  if (rule != nullptr && rule->who == asker::peer && !is_of_peer(h)) return verdict::refuse_no_peer;
  if (of_chains) return h.what == verb::replicate ? verdict::replicate : verdict::confirm;
  // Those on all partitions wait until the replicas of these are complete. Requests of a client stay in order: what
  // follows a parked one is parked too.
  const bool everywhere = context_.options.at == place::shard && net::traits_of(h.what).scope != net::verb_scope::named;
  const bool waits =
      !serves() || (everywhere && !is_synced) ||
      std::any_of(parked_.begin(), parked_.end(), [&](const auto& p) { return p.header.client == h.client; });
  return waits ? verdict::park : verdict::serve;
}

/// Whether the sender is a thread of a server of this epoch, and means us.
bool epoch_admission::is_of_peer(const net::request_header& h) const {
  const auto between = link::of(h);
  return between.to == context_.options.incarnation && context_.view->owned.knows({between.from_slot, between.from});
}

bool epoch_admission::park(const net::request_view& request, shared_buffer& tail, completion& done) {
  held_bytes held;
  if (!held.take(context_.budgets.parked, request.body.size() + tail.size() + sizeof(parked))) return false;
  parked_.push_back(
      {request.header, {request.body.begin(), request.body.end()}, std::move(tail), std::move(done), std::move(held)});
  return true;
}

void epoch_admission::begin_epoch(const replica_view* before) {
  const bool unanswered = !questions_.empty();
  questions_.clear();
  if (unanswered || needs_handover(before)) request_handover();
}

/// Whether a live server served one of our partitions before: then it is asked whether it has stopped.
bool epoch_admission::needs_handover(const replica_view* before) const {
  if (before == nullptr)
    return context_.view->members.servers[context_.view->self].state == server_state::up && context_.epoch > 1;
  for (std::uint32_t p = context_.options.index; p < partition_count; p += context_.options.threads) {
    if (!context_.view->owned.mine[p] || before->owned.mine[p]) continue;
    const auto& was = before->members.servers[before->router.locate_partition(static_cast<std::uint16_t>(p)).server];
    for (const auto& s : context_.view->members.servers) {
      const bool lives = takes_part(s.state) || s.state == server_state::left;
      if (lives && s.slot == was.slot && s.incarnation == was.incarnation) return true;
    }
  }
  return false;
}

void epoch_admission::request_handover() {
  for (const auto& s : context_.view->members.servers) {
    if (s.slot == context_.view->members.servers[context_.view->self].slot) continue;
    if (!may_head(s.state) && s.state != server_state::left) continue;
    if (context_.options.at == place::clock) {
      ask(context_.hop_to(s, clock_partition));
      continue;
    }
    for (std::uint32_t i = 0; i < s.threads; ++i) {
      if (s.threads == context_.options.threads && i != context_.options.index) continue;  // has none of our partitions
      ask({s.slot, i});
    }
  }
}

void epoch_admission::ask(const chain_hop& to) {
  questions_.emplace(links_.send(to, verb::handover, {}), question{to, context_.now});
}

void epoch_admission::renew(const chain_hop& to) {
  const auto again = std::erase_if(questions_, [&](const auto& q) { return q.second.to == to; });
  for (std::size_t i = 0; i < again; ++i) ask(to);
}

void epoch_admission::add_waits(replication_links::oldest_waits& out) const {
  for (const auto& [number, q] : questions_) out.add(q.to, q.at);
}

}  // namespace paracel::srv
