// SPDX-License-Identifier: BSD-3-Clause
#include "server/asked_again.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

namespace paracel::srv {

bool asked_again::takes(const net::request_header& h, const net::peer& from) try {
  if ((h.flags & net::flag_stream) == 0) return true;
  auto& l = lines_[h.client];
  if ((h.flags & net::flag_first) != 0) {
    l.at = from;
    l.peers.push_back(from);
    line_of_[from] = h.client;
  } else if (l.at != from) {
    completion(*this, from, h.what, h.sequence, h.job, 0).fail(net::status::reconnected);
    return false;
  }
  if (h.sequence == 0) return true;  // pings, and what nobody waits for
  if (h.sequence > l.last) {
    l.last = h.sequence;
    l.answered = false;
    l.answer = {};
    l.tail = {};
    for (const auto& p : std::exchange(l.peers, {from}))
      if (p != from) line_of_.erase(p);
    return true;
  }
  if (h.sequence == l.last && l.answered) port_.reply(l.at, {.head = l.answer, .body = {}, .tail = l.tail});
  return false;
} catch (const std::exception&) {  // no memory: its sender asks again
  return false;
}

void asked_again::send(const net::peer& to, const net::outgoing& message) {
  const auto known = line_of_.find(to);
  net::reply_view reply;
  if (known == line_of_.end()) return port_.reply(to, message);
  auto& l = lines_.at(known->second);
  std::vector<std::byte> whole(message.head.begin(), message.head.end());
  whole.insert(whole.end(), message.body.begin(), message.body.end());
  const bool reads = net::decode(whole, message.tail.size(), reply) == nullptr;
  if (!reads || reply.header.sequence == 0 || reply.header.sequence != l.last || l.answered ||
      reply.header.result == net::status::reconnected) {
    return port_.reply(to, message);
  }
  port_.reply(l.at, message);  // first: what cannot be sent can still be refused
  l.answered = true;
  l.answer = std::move(whole);
  l.tail = message.tail;
}

}  // namespace paracel::srv
