// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/message_log.hpp"

#include <algorithm>

#include "net/collective_codec.hpp"

namespace paracel::srv {

void answer_with(completion& done, const shared_buffer& bytes, net::reply_header fields) {
  if (net::travels_as_tail(bytes.size())) done.answer(fields, {}, bytes);
  else done.answer(fields, bytes.bytes());
}

void message_log::send(const ranks& of, const number& n, shared_buffer bytes) {
  auto& s = streams_[of];
  if (s.last && n <= *s.last) return;
  s.last = n;
  bytes_ += bytes.size();
  auto& m = s.messages.emplace_back(message{std::move(bytes), std::nullopt});
  if (!s.waiting) return;
  m.taken = s.wanted;
  answer_with(s.waiting, m.bytes);
}

bool message_log::receive(const ranks& of, const number& n, completion done) {
  auto& s = streams_[of];
  while (!s.messages.empty() && s.messages.front().taken && s.messages.front().taken->clock < n.clock) {
    bytes_ -= s.messages.front().bytes.size();
    s.messages.pop_front();
  }
  const auto m = std::ranges::find_if(s.messages, [&](const message& one) { return !one.taken || *one.taken == n; });
  if (m == s.messages.end()) {
    s.wanted = n;
    s.waiting = std::move(done);
    return false;
  }
  m->taken = n;
  answer_with(done, m->bytes);
  return true;
}

void message_log::calls(std::uint32_t sender, const shared_buffer& contribution) {
  for (auto s = streams_.lower_bound({sender, 0}); s != streams_.end() && s->first.first == sender; ++s) {
    if (!s->second.waiting) continue;
    net::reply_header fields;
    fields.count = 1;
    answer_with(s->second.waiting, contribution, fields);
  }
}

void message_log::fail(std::uint32_t sender, std::string_view why) {
  for (auto s = streams_.lower_bound({sender, 0}); s != streams_.end() && s->first.first == sender; ++s)
    if (s->second.waiting) s->second.waiting.fail(net::status::bad_request, why);
}

void message_log::fail_all(net::status why, std::string_view text) {
  for (auto& [of, s] : streams_)
    if (s.waiting) s.waiting.fail(why, text);
}

void message_log::replace(std::uint32_t rank) {
  for (auto& [of, s] : streams_)
    if (of.second == rank) s.waiting = {};
}

}  // namespace paracel::srv
