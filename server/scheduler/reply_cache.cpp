// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/reply_cache.hpp"

#include <exception>
#include <paracel/free_memory.hpp>
#include <span>
#include <utility>

namespace paracel::srv {

/// Keeps the newest one.
void reply_cache::make_room() {
  while ((channels_.size() > most_channels || bytes_ > most_bytes) && channels_.size() > 1) {
    channels_.drop_oldest([this](const auto& oldest) {
      sender_at_.erase(oldest.state.over);
      bytes_ -= oldest.state.answer.size();
      release_tail(oldest.state);
    });
  }
}

void reply_cache::keep_tail(const stream_sender& of, last_request& last, const shared_buffer& tail) {
  if (tail.size() == 0) return;
  tails_.emplace(last_tail_ + 1, of);
  last.tail_number = ++last_tail_;
  last.tail = tail;
  if (++users_of_[tail.data()] == 1) tail_bytes_ += tail.size();
  while (tail_bytes_ > most_tail_bytes_ && tails_.size() > 1) {
    auto* const oldest = channels_.find(tails_.begin()->second);
    if (oldest == nullptr) {
      tails_.erase(tails_.begin());
      continue;
    }
    release_tail(oldest->state);
    oldest->state.tail = {};
    oldest->state.tail_number = 0;
    oldest->state.lacks_tail = true;
  }
}

/// Its owner forgets it afterwards.
void reply_cache::release_tail(const last_request& last) noexcept {
  if (last.tail_number == 0) return;
  if (const auto users = users_of_.find(last.tail.data()); users != users_of_.end() && --users->second == 0) {
    tail_bytes_ -= last.tail.size();
    users_of_.erase(users);
  }
  tails_.erase(last.tail_number);
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
  if ((h.flags & net::flag_first) != 0) make_room();
  if (h.sequence == 0) return true;  // pings, and one-way messages
  if (h.sequence > last.number) {
    if (last.over != from) {
      sender_at_.insert_or_assign(from, sender);
      sender_at_.erase(std::exchange(last.over, from));
    }
    last.number = h.sequence;
    last.answered = false;
    bytes_ -= last.answer.size();
    free_memory(last.answer);
    release_tail(last);
    last.tail = {};
    last.tail_number = 0;
    last.lacks_tail = false;
    return true;
  }
  if (h.sequence == last.number && last.answered && last.lacks_tail)
    completion(*this, from, h.what, h.sequence, 0, 0)
        .fail(net::status::too_large, "the reply was lost with a connection and is no longer kept: it was too large");
  else if (h.sequence == last.number && last.answered)
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
  bytes_ += last.answer.size();
  try {
    keep_tail(sender->second, last, message.tail);
  } catch (const std::bad_alloc&) {  // it has been sent
    release_tail(last);
    last.tail = {};
    last.tail_number = 0;
    last.lacks_tail = message.tail.size() != 0;
  }
  make_room();
}

}  // namespace paracel::srv
