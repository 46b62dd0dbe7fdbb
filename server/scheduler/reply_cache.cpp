// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/reply_cache.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

namespace paracel::srv {

void reply_cache::heard_from(std::uint64_t client, line& l) {
  if (l.heard != 0) by_age_.erase(l.heard);
  l.heard = ++heard_;
  by_age_.emplace(l.heard, client);
}

/// The newest one stays.
void reply_cache::make_room() {
  while ((lines_.size() > most_lines || bytes_ > most_bytes) && lines_.size() > 1) {
    const auto oldest = lines_.find(by_age_.begin()->second);
    for (const auto& p : oldest->second.peers) line_of_.erase(p);
    bytes_ -= oldest->second.answer.size();
    by_age_.erase(by_age_.begin());
    lines_.erase(oldest);
  }
}

bool reply_cache::accepts(const net::request_header& h, const net::peer& from) try {
  if ((h.flags & net::flag_stream) == 0) return true;
  const bool first = (h.flags & net::flag_first) != 0;
  const auto known = lines_.find(h.client);
  if (!first && (known == lines_.end() || known->second.at != from)) {
    completion(*this, from, h.what, h.sequence, 0, 0).fail(net::status::connection_reset);
    return false;
  }
  auto& l = known != lines_.end() ? known->second : lines_[h.client];
  heard_from(h.client, l);
  if (first) {
    l.at = from;
    if (std::ranges::find(l.peers, from) == l.peers.end()) {
      if (l.peers.size() == most_peers) {
        line_of_.erase(l.peers.front());
        l.peers.erase(l.peers.begin());
      }
      l.peers.push_back(from);
    }
    line_of_[from] = h.client;
    make_room();
  }
  if (h.sequence == 0) return true;  // pings, and one-way messages
  if (h.sequence > l.last) {
    l.last = h.sequence;
    l.answered = false;
    bytes_ -= l.answer.size();
    l.answer = {};
    l.tail = {};
    for (const auto& p : std::exchange(l.peers, {from}))
      if (p != from) line_of_.erase(p);
    return true;
  }
  if (h.sequence == l.last && l.answered) port_.reply(l.at, {.head = l.answer, .body = {}, .tail = l.tail});
  return false;
} catch (const std::exception&) {  // no memory: its sender retries
  return false;
}

void reply_cache::send(const net::peer& to, const net::outgoing& message) {
  const auto known = line_of_.find(to);
  net::reply_view reply;
  if (known == line_of_.end()) return port_.reply(to, message);
  const auto kept = lines_.find(known->second);
  if (kept == lines_.end()) return port_.reply(to, message);
  auto& l = kept->second;
  std::vector<std::byte> whole(message.head.begin(), message.head.end());
  whole.insert(whole.end(), message.body.begin(), message.body.end());
  const bool reads = net::decode(whole, message.tail.size(), reply) == nullptr;
  if (!reads || reply.header.sequence == 0 || reply.header.sequence != l.last || l.answered ||
      reply.header.result == net::status::connection_reset) {
    return port_.reply(to, message);
  }
  port_.reply(l.at, message);  // first: what cannot be sent can still be refused
  l.answered = true;
  l.answer = std::move(whole);
  l.tail = message.tail;
  bytes_ += l.answer.size();
  make_room();
}

}  // namespace paracel::srv
