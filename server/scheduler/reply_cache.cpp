// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/reply_cache.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

namespace paracel::srv {

/// Keeps the newest one.
void reply_cache::make_room() {
  while ((channels_.size() > most_channels || bytes_ > most_bytes) && channels_.size() > 1) {
    channels_.drop_oldest([this](const auto& oldest) {
      for (const auto& p : oldest.state.peers) sender_at_.erase(p);
      bytes_ -= oldest.state.answer.size();
    });
  }
}

bool reply_cache::accepts(const net::request_header& h, const net::peer& from) try {
  if ((h.flags & net::flag_stream) == 0) return true;
  auto* const known = channels_.accept(h, from);
  if (known == nullptr) {
    completion(*this, from, h.what, h.sequence, 0, 0).fail(net::status::connection_reset);
    return false;
  }
  const auto sender = stream_sender::of(h);
  channels_.mark_recent(sender, *known);
  auto& last = known->state;
  if ((h.flags & net::flag_first) != 0) {
    if (std::ranges::find(last.peers, from) == last.peers.end()) {
      if (last.peers.size() == most_peers) {
        sender_at_.erase(last.peers.front());
        last.peers.erase(last.peers.begin());
      }
      last.peers.push_back(from);
    }
    sender_at_[from] = sender;
    make_room();
  }
  if (h.sequence == 0) return true;  // pings, and one-way messages
  if (h.sequence > last.number) {
    last.number = h.sequence;
    last.answered = false;
    bytes_ -= last.answer.size();
    last.answer = {};
    last.tail = {};
    for (const auto& p : std::exchange(last.peers, {from}))
      if (p != from) sender_at_.erase(p);
    return true;
  }
  if (h.sequence == last.number && last.answered)
    port_.reply(known->from, {.head = last.answer, .body = {}, .tail = last.tail});
  return false;
} catch (const std::exception&) {  // no memory: its sender retries
  return false;
}

void reply_cache::send(const net::peer& to, const net::outgoing& message) {
  const auto sender = sender_at_.find(to);
  auto* const known = sender == sender_at_.end() ? nullptr : channels_.find(sender->second);
  if (known == nullptr) return port_.reply(to, message);
  auto& last = known->state;
  net::reply_view reply;
  std::vector<std::byte> whole(message.head.begin(), message.head.end());
  whole.insert(whole.end(), message.body.begin(), message.body.end());
  const bool reads = net::decode(whole, message.tail.size(), reply) == nullptr;
  if (!reads || reply.header.sequence == 0 || reply.header.sequence != last.number || last.answered ||
      reply.header.result == net::status::connection_reset) {
    return port_.reply(to, message);
  }
  port_.reply(known->from, message);  // first: if sending throws, the request can still be refused
  last.answered = true;
  last.answer = std::move(whole);
  last.tail = message.tail;
  bytes_ += last.answer.size();
  make_room();
}

}  // namespace paracel::srv
