// SPDX-License-Identifier: BSD-3-Clause
//
// The connections of a chain to the shards of other servers, and handling of broken ones: see replication_chain.hpp.
#include <algorithm>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "server/replication/replication_chain.hpp"
#include "server/request/verb_rules.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

constexpr std::chrono::milliseconds longest_look_interval{250};

}  // namespace

replication_chain::replica_link& replication_chain::link_to(const hop& to) {
  const auto& servers = view_->members.servers;
  const auto s = std::find_if(servers.begin(), servers.end(), [&](const auto& e) { return e.slot == to.slot; });
  const bool is_there = s != servers.end() && (to.thread == clock_thread || to.thread < s->shards.size());
  if (!is_there) throw error("no server for a replica");
  const auto known = links_.find(to);
  if (known != links_.end() && known->second.incarnation == s->incarnation) return known->second;
  if (known != links_.end()) {
    known->second.channel.disconnect();
    links_.erase(known);
  }
  const auto& address = to.thread == clock_thread ? s->clock : s->shards[to.thread];
  return links_
      .emplace(
          to, replica_link{net::reliable_channel(port_, address,
                                                 {.policy = net::on_loss::notify, .silent = options_.resend_after / 4}),
                           s->incarnation,
                           {},
                           now_})
      .first->second;
}

/// Drops connections to processes that no longer exist.
void replication_chain::give_up_links() {
  for (auto at = links_.begin(); at != links_.end();) {
    auto& [to, l] = *at;
    if (view_->owned.knows({to.slot, l.incarnation})) {
      ++at;
      continue;
    }
    l.channel.disconnect();
    at = links_.erase(at);
  }
}

/// Functions and tables that the other side may not know: records refer to them.
void replication_chain::replay_registrations(replica_link& to) {
  const auto known = std::exchange(to.told, store_.defined());
  if (known == to.told) return;
  store_.each_definition(known, [&](verb what, std::string_view key, std::span<const std::byte> payload) {
    send_on(to, what, key, payload);
  });
}

std::uint64_t replication_chain::transmit(const hop& to, verb what, std::span<const std::byte> body) {
  auto& l = link_to(to);
  replay_registrations(l);
  const auto most = options_.most_body_bytes;
  while (body.size() > most) {
    const auto after = (body.size() - 1) / most;
    send_on(l, what, {}, body.first(most), after);
    body = body.subspan(most);
  }
  return send_on(l, what, {}, body);
}

/// Returns: the number of the request.
std::uint64_t replication_chain::send_on(replica_link& to, verb what, std::string_view key,
                                         std::span<const std::byte> payload, std::size_t pieces_after) {
  std::vector<std::byte> both;
  if (!key.empty()) {
    both.assign(net::bytes_of(key).begin(), net::bytes_of(key).end());
    both.insert(both.end(), payload.begin(), payload.end());
    payload = both;
  }
  net::request_header h;
  h.what = what;
  h.job = options_.job;
  h.client = options_.incarnation;
  if (what == verb::replicate || what == verb::handover) {
    link{.from = options_.incarnation, .from_slot = options_.slot, .to = to.incarnation}.write(h);
  }
  h.rank = options_.index;
  h.sequence = ++next_;
  h.epoch = epoch_;
  h.count = static_cast<std::uint32_t>(pieces_after);
  h.key_bytes = static_cast<std::uint32_t>(key.size());
  to.channel.send(h, payload);
  return next_;
}

// ---- a connection breaks --------------------------------------------------------------------------------------------

/// Checks connections over which a reply is late, or nothing has arrived for as long: one that has fallen silent is
/// found before the next update waits for it.
void replication_chain::check_links() {
  if (now_ < next_look_) return;
  next_look_ = now_ + std::min<time_point::duration>(longest_look_interval, options_.resend_after / 4);
  std::map<hop, time_point> oldest;
  const auto waits_for = [&](const hop& to, time_point since) {
    const auto [at, fresh] = oldest.try_emplace(to, since);
    if (!fresh) at->second = std::min(at->second, since);
  };
  for (const auto& [number, s] : pending_) waits_for(routes_[s.route].front(), s.at);
  for (const auto& [number, f] : forwarded_) waits_for(f.to, f.at);
  for (const auto& [number, q] : questions_) waits_for(q.to, q.at);
  for (const auto& [to, since] : oldest) (void)link_to(to);
  std::vector<hop> silent;
  for (auto& [to, l] : links_) {
    const auto at = oldest.find(to);
    if (now_ - (at != oldest.end() ? at->second : l.heard) < options_.resend_after) continue;
    net::request_header identity;
    identity.job = options_.job;
    identity.client = options_.incarnation;
    identity.rank = options_.index;
    identity.epoch = epoch_;
    l.channel.check_health(now_.time_since_epoch(), identity, {.heard = l.heard.time_since_epoch()});
    if (l.channel.is_broken()) silent.push_back(to);
  }
  for (const auto& to : silent) renew(to);
}

/// The reply to a ping, or the rejection of what came over a new connection. Returns: whether it was one of these.
bool replication_chain::take_refusal(const hop& from, replica_link& over, const net::reply_header& reply,
                                     int connection) {
  if (reply.result != status::connection_reset && reply.what != verb::ping) return false;
  if (!over.channel.is_probe(connection)) over.heard = now_;
  over.channel.take(reply, connection);
  if (over.channel.is_broken()) renew(from);
  return true;
}

/// A new connection replaces one that may have lost messages. Asks about everything that is unanswered there.
void replication_chain::renew(const hop to) {
  auto& l = links_.at(to);
  l.channel.renew();
  l.told = {};
  std::vector<std::uint64_t> asked_there;
  for (const auto& [number, q] : questions_)
    if (q.to == to) asked_there.push_back(number);
  for (const auto number : asked_there) {
    questions_.erase(number);
    questions_.emplace(transmit(to, verb::handover, {}), asked{to, now_});
  }
  // The heads of these will ask the whole chain again, over the connections that they have: if they renewed them,
  // messages of others there would be lost in turn, and in a ring of chains this would never end.
  for (auto& [number, f] : forwarded_)
    if (f.to == to) f.done.fail(status::expired);
  std::erase_if(forwarded_, [&](const auto& f) { return f.second.to == to; });
  for (std::uint32_t number = 1; number < routes_.size(); ++number)
    if (routes_[number].front() == to) ask_again(number);
}

/// A connection further down the chain has broken: it is unknown how far this message has come.
void replication_chain::ask_after(std::uint64_t number) {
  if (const auto f = forwarded_.find(number); f != forwarded_.end()) {
    f->second.done.fail(status::expired);
    forwarded_.erase(f);
  } else if (const auto s = pending_.find(number); s != pending_.end()) {
    ask_again(s->second.route);
  }
}

/// One question about all partitions of this route replaces everything that is unanswered there.
void replication_chain::ask_again(std::uint32_t route_number) {
  std::uint64_t first = 0;
  for (auto at = pending_.begin(); at != pending_.end();) {
    auto& s = at->second;
    if (s.route != route_number) {
      ++at;
      continue;
    }
    sweeping_bytes_ -= std::exchange(s.bytes, 0);
    if (first != 0) {
      at = pending_.erase(at);
      continue;
    }
    // Replies keep waiting for the oldest message, and it waits for the question. It will get no reply of its own:
    // replies of one route arrive in order, and the one that made us ask was the next, or the connection is a new one.
    first = at->first;
    s.open = 0;
    s.parent = 0;
    s.again = false;
    s.at = now_;
    s.probes.clear();
    ++at;
  }
  if (first == 0) return;
  bundle b;
  for (std::uint32_t p = options_.index; p < partition_count; p += options_.threads) {
    const auto place = p / options_.threads;
    if (route_of_[place] == route_number) ask_about(b, static_cast<std::uint16_t>(p));
  }
  pending_.at(dispatch(route_number, b, first, 0)).again = true;
}

}  // namespace paracel::srv
