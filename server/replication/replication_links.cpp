// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/replication_links.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "server/request/verb_rules.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

constexpr std::chrono::milliseconds longest_check_interval{250};

}  // namespace

replication_links::replica_link& replication_links::link_to(const chain_hop& to) {
  const auto& servers = context_.view->members.servers;
  const auto s = std::find_if(servers.begin(), servers.end(), [&](const auto& e) { return e.slot == to.slot; });
  const bool is_there = s != servers.end() && (to.thread == chain_hop::clock_thread || to.thread < s->shards.size());
  if (!is_there) throw error("no server for a replica");
  const auto known = links_.find(to);
  if (known != links_.end() && known->second.incarnation == s->incarnation) return known->second;
  if (known != links_.end()) {
    known->second.channel.disconnect();
    links_.erase(known);
  }
  const auto& address = to.thread == chain_hop::clock_thread ? s->clock : s->shards[to.thread];
  return links_
      .emplace(to, replica_link{net::reliable_channel(
                                    port_, address,
                                    {.policy = net::on_loss::notify, .silent = context_.options.resend_after / 4}),
                                s->incarnation,
                                {},
                                context_.now})
      .first->second;
}

/// Functions and tables that the other side may not know: records refer to them.
void replication_links::replay_registrations(replica_link& to) {
  const auto known = std::exchange(to.told, context_.store.defined());
  if (known == to.told) return;
  context_.store.each_definition(known, [&](verb what, std::string_view key, std::span<const std::byte> payload) {
    send_on(to, what, key, payload);
  });
}

std::uint64_t replication_links::send(const chain_hop& to, verb what, std::span<const std::byte> body) {
  auto& l = link_to(to);
  replay_registrations(l);
  const auto most = context_.options.most_body_bytes;
  while (body.size() > most) {
    const auto after = (body.size() - 1) / most;
    send_on(l, what, {}, body.first(most), after);
    body = body.subspan(most);
  }
  return send_on(l, what, {}, body);
}

/// Returns: the number of the request.
std::uint64_t replication_links::send_on(replica_link& to, verb what, std::string_view key,
                                         std::span<const std::byte> payload, std::size_t pieces_after) {
  std::vector<std::byte> both;
  if (!key.empty()) {
    both.assign(net::bytes_of(key).begin(), net::bytes_of(key).end());
    both.insert(both.end(), payload.begin(), payload.end());
    payload = both;
  }
  net::request_header h;
  h.what = what;
  h.job = context_.options.job;
  h.client = context_.options.incarnation;
  if (what == verb::replicate || what == verb::handover) {
    link{.from = context_.options.incarnation, .from_slot = context_.options.slot, .to = to.incarnation}.write(h);
  }
  h.rank = context_.options.index;
  if (context_.traced && what == verb::replicate) [[unlikely]]
    h.flags |= net::flag_traced;
  h.sequence = ++last_number_;
  h.epoch = context_.epoch;
  h.count = static_cast<std::uint32_t>(pieces_after);
  h.key_bytes = static_cast<std::uint32_t>(key.size());
  to.channel.send(h, payload);
  return last_number_;
}

replication_links::arrival replication_links::receive(const net::reply_header& reply, int connection, chain_hop& from) {
  const auto at = std::ranges::find_if(links_, [&](const auto& l) { return l.second.channel.owns(connection); });
  if (at == links_.end()) return arrival::ignored;  // over a connection that was given up: asked again since
  auto& l = at->second;
  from = at->first;
  // Another process has its address. Of the server itself we only know that it is silent.
  if (reply.server != l.incarnation) return arrival::ignored;
  if (reply.result != status::connection_reset && reply.what != verb::ping) {
    l.heard = context_.now;
    return arrival::reply;
  }
  if (!l.channel.is_probe(connection)) l.heard = context_.now;
  l.channel.take(reply, connection);
  return l.channel.is_broken() ? arrival::broken : arrival::ignored;
}

bool replication_links::is_check_due() noexcept {
  if (context_.now < next_check_) return false;
  next_check_ =
      context_.now + std::min<time_point::duration>(longest_check_interval, context_.options.resend_after / 4);
  return true;
}

std::vector<chain_hop> replication_links::find_broken(const oldest_waits& waits) {
  for (const auto& [to, since] : waits.since_) (void)link_to(to);
  std::vector<chain_hop> broken;
  for (auto& [to, l] : links_) {
    const auto at = waits.since_.find(to);
    if (context_.now - (at != waits.since_.end() ? at->second : l.heard) < context_.options.resend_after) continue;
    net::request_header identity;
    identity.job = context_.options.job;
    identity.client = context_.options.incarnation;
    identity.rank = context_.options.index;
    identity.epoch = context_.epoch;
    l.channel.check_health(context_.now.time_since_epoch(), identity, {.heard = l.heard.time_since_epoch()});
    if (l.channel.is_broken()) broken.push_back(to);
  }
  return broken;
}

void replication_links::renew(const chain_hop& to) {
  auto& l = links_.at(to);
  l.channel.renew();
  l.told = {};
}

void replication_links::drop_dead() {
  for (auto at = links_.begin(); at != links_.end();) {
    auto& [to, l] = *at;
    if (context_.view->owned.knows({to.slot, l.incarnation})) {
      ++at;
      continue;
    }
    l.channel.disconnect();
    at = links_.erase(at);
  }
}

}  // namespace paracel::srv
