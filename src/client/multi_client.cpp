// SPDX-License-Identifier: BSD-3-Clause
//
// Several requests that look like one to the caller: many keys, and prepared sets of them.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include <paracel/error.hpp>

#include "client/multi_client.hpp"
#include "client/server_group.hpp"
#include "core/gather.hpp"

namespace paracel {

namespace {

// A shard with too little room for the key sets of all its clients may evict one before it is used.
constexpr unsigned most_attempts = 16;

/// Calls f on destruction.
template <class F>
struct finally {
  F f;
  ~finally() { f(); }
};
template <class F>
finally(F) -> finally<F>;

/// Calls f on destruction by an exception.
template <class F>
struct on_error {
  F f;
  int before = std::uncaught_exceptions();
  ~on_error() {
    if (std::uncaught_exceptions() > before) f();
  }
};
template <class F>
on_error(F) -> on_error<F>;

std::size_t keys_bytes(const sharded_keys& set, std::uint32_t begin, std::uint32_t end) {
  std::size_t bytes = 0;
  for (auto k = begin; k < end; ++k) bytes += net::request_item_bytes + set.keys[set.order[k]].size();
  return bytes;
}

/// The payload of set_prepare, from which the digest is computed.
void write_keys(const sharded_keys& set, std::uint32_t begin, std::uint32_t end, byte_buffer& out) {
  auto* to = out.reserve(keys_bytes(set, begin, end));
  for (auto k = begin; k < end; ++k) to = net::write_item(to, set.keys[set.order[k]], {});
}

/// The size of these items. Throws: protocol_error when a key is too long.
std::size_t items_bytes(std::span<const std::string> keys, const multi_client::set_payload& values) {
  std::size_t bytes = keys.size() * (net::request_item_bytes + values.value_bytes);
  std::size_t longest = 0;
  for (const auto& key : keys) {
    bytes += key.size();
    longest = std::max(longest, key.size());
  }
  if (longest > net::max_key_bytes) std::ranges::for_each(keys, kvclt::check_key);
  for (const auto& value : values.items) bytes += value.bytes.size();
  return bytes;
}

std::string_view text_of(const digest128& d) { return {reinterpret_cast<const char*>(&d), sizeof d}; }

}  // namespace

multi_request& multi_client::open_group(const call& c) {
  servers_.wait_for_window(0);  // first: a handler that runs meanwhile may use a group
  if (free_groups_.empty()) {
    free_groups_.reserve(groups_.size() + 1);
    groups_.push_back(std::make_unique<multi_request>());
    free_groups_.push_back(groups_.back().get());
  }
  auto& g = *free_groups_.back();
  free_groups_.pop_back();
  g.number = shared_.window.open(c.what, g);
  g.header = kvclt::header_of(c);
  g.unanswered = 1;  // until all have been sent
  g.used = 0;
  return g;
}

void multi_client::release(multi_request& g) noexcept {
  g.silence();
  g.set = nullptr;
  for (std::size_t i = 0; i < g.used; ++i) g.chunks[i].body.trim();
  free_groups_.push_back(&g);
}

/// One request of the group was answered, or the last one was sent.
void multi_client::answered_part(multi_request& g) {
  if (--g.unanswered != 0) return;
  const auto number = g.number;
  shared_.window.close(shared_.window.at(number));
  const auto end = std::move(g.end);
  release(g);
  if (end) end(number);
}

multi_client::sequence multi_client::multi_async(const call& c, std::span<const std::string> keys,
                                                 const set_payload& values, keyed_handler each, end_handler end,
                                                 uniform_handler uniform) {
  servers_.refresh_membership();
  const server_group::pin_routing here(servers_);
  auto& g = open_group(c);
  const auto number = g.number;
  g.each = std::move(each);
  g.each_uniform = std::move(uniform);
  g.end = std::move(end);
  if (g.each_uniform && !shared_.may_change) g.header.flags |= net::flag_uniform_reply;
  const finally sent{[&] { answered_part(g); }};
  const on_error failed{[&] { g.silence(); }};
  const auto all = items_bytes(keys, values);
  place_keys(g, keys);
  if (const auto only = routes_.only_shard(); only && !keys.empty() && all <= shared_.options.multi_chunk_bytes) {
    send_items(g, *only, {0, static_cast<std::uint32_t>(keys.size())}, keys, values, all);
    return number;
  }
  std::uint32_t from = 0;
  for (std::uint32_t channel = 0; channel < routes_.channels(); ++channel) {
    const auto last = g.begin[channel];
    while (from < last) {
      std::size_t bytes = 0;
      auto to = from;
      while (to < last && (to == from || bytes < shared_.options.multi_chunk_bytes)) {
        const auto i = g.order[to++];
        bytes += net::request_item_bytes + keys[i].size() + values.at(i).bytes.size();
      }
      send_items(g, channel, {from, to}, keys, values, bytes);
      from = to;
    }
  }
  return number;
}

/// The order of the keys, and for each channel the end of its part.
void multi_client::place_keys(multi_request& g, std::span<const std::string> keys) const {
  if (g.order.size() < keys.size()) g.order.resize(keys.size());
  g.begin.assign(routes_.channels() + 1, 0);
  if (const auto only = routes_.only_shard()) {
    for (; g.in_order < keys.size(); ++g.in_order) g.order[g.in_order] = static_cast<std::uint32_t>(g.in_order);
    g.begin[*only] = static_cast<std::uint32_t>(keys.size());
    return;
  }
  g.in_order = 0;
  // Counting sort of the keys by channel.
  g.channel_of.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    g.channel_of[i] = routes_.channel_of(routes_.locate(keys[i]));
    ++g.begin[g.channel_of[i]];
  }
  std::uint32_t sum = 0;
  for (auto& b : g.begin) sum += std::exchange(b, sum);
  for (std::size_t i = 0; i < keys.size(); ++i) g.order[g.begin[g.channel_of[i]]++] = static_cast<std::uint32_t>(i);
}

void multi_client::send_items(multi_request& g, std::uint32_t channel, unsigned_range piece,
                              std::span<const std::string> keys, const set_payload& values, std::size_t bytes) {
  const auto index = g.used;
  auto& chunk = g.add(channel, piece.first, piece.second);
  auto* to = chunk.body.reserve(bytes);
  for (auto k = piece.first; k < piece.second; ++k) {
    const auto i = g.order[k];
    to = net::write_item(to, keys[i], values.at(i));
  }
  auto h = g.header;
  h.count = piece.second - piece.first;
  shared_.window.at(g.number).channel = channel;
  ++g.unanswered;
  try {
    servers_.send(channel, h, {}, {}, chunk.body.bytes(), {},
                  [this, &g, index](const kv_result& r) { receive_items(g, index, r); });
  } catch (...) {
    --g.unanswered;
    throw;
  }
}

void multi_client::receive_items(multi_request& g, std::size_t index, const kv_result& r) {
  const finally counted{[&] { answered_part(g); }};
  if (!g.each) return;
  auto& chunk = g.chunks[index];
  const auto count = chunk.end - chunk.begin;
  const auto* order = g.order.data() + chunk.begin;
  net::request_items asked(chunk.body.bytes(), count);
  net::request_item request;
  if (r.ok() && (r.header.flags & net::reply_uniform) != 0) {
    if (!g.each_uniform || r.header.count != count || !asked.next(request))
      throw protocol_error("a multi reply does not fit its request");
    return g.each_uniform(std::span(order, count), request.key, r);
  }
  if (!r.ok()) {
    for (std::size_t n = 0; n < count && asked.next(request); ++n)
      g.each(order[n], request.key, {r.header.result, 0, {value_tag::packed, r.body}});
    return;
  }
  net::reply_items items(r.tail ? r.tail.bytes() : r.body, r.header.count);
  net::reply_item item;
  std::size_t n = 0;
  for (; n < count && items.next(item) && asked.next(request); ++n) g.each(order[n], request.key, item);
  if (n != count || !items.ok()) throw protocol_error("a multi reply does not fit its request");
}

void multi_client::multi(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
                         const item_handler& each) {
  servers_.wait(multi_async(c, keys, values,
                            [&each](std::size_t i, std::string_view, const net::reply_item& item) { each(i, item); }));
}

// ---- prepared key sets --------------------------------------------------------------------------------------------

std::shared_ptr<const sharded_keys> multi_client::split_here(std::shared_ptr<const sharded_keys> set) {
  auto& now = sets_here_[set];
  if (now == nullptr) now = split(set->keys);
  return now;
}

std::shared_ptr<const sharded_keys> multi_client::split(std::vector<std::string> keys) const {
  auto set = std::make_shared<sharded_keys>();
  set->job = shared_.job;
  set->epoch = shared_.epoch;
  set->keys = std::move(keys);
  std::vector<std::vector<std::uint32_t>> of_channel(routes_.channels());
  for (std::uint32_t i = 0; i < set->keys.size(); ++i) {
    kvclt::check_key(set->keys[i]);
    of_channel[routes_.channel_of(routes_.locate(set->keys[i]))].push_back(i);
  }
  byte_buffer payload;
  for (std::uint32_t channel = 0; channel < routes_.channels(); ++channel) {
    std::size_t bytes = shared_.options.multi_chunk_bytes;
    for (const auto i : of_channel[channel]) {
      const auto at = static_cast<std::uint32_t>(set->order.size());
      if (bytes >= shared_.options.multi_chunk_bytes) {
        set->parts.push_back({channel, at, at, {}});
        bytes = 0;
      }
      bytes += net::request_item_bytes + set->keys[i].size();
      set->order.push_back(i);
      ++set->parts.back().end;
    }
  }
  for (auto& part : set->parts) {
    write_keys(*set, part.begin, part.end, payload);
    part.digest = digest_of(payload.bytes());
  }
  return set;
}

bool multi_client::is_prepared(const sharded_keys::part& part) const {
  const auto& to = routes_.at(part.channel);
  return to.client->has_set(to.thread, part.digest);
}

void multi_client::send_prepare(const sharded_keys& set, const sharded_keys::part& part, kvclt::handler done) {
  byte_buffer payload;
  write_keys(set, part.begin, part.end, payload);
  net::request_header h;
  h.what = net::verb::set_prepare;
  h.count = part.end - part.begin;
  servers_.send(part.channel, h, text_of(part.digest), {}, payload.bytes(), {}, std::move(done));
  const auto& to = routes_.at(part.channel);
  to.client->record_set(to.thread, part.digest);
}

void multi_client::prepare(const sharded_keys& set) {
  if (set.epoch != shared_.epoch) return;  // the first request on it prepares the new one
  for (const auto& part : set.parts) {
    if (is_prepared(part)) continue;
    send_prepare(set, part, nullptr);  // errors are reported by the first request
  }
}

multi_client::sequence multi_client::set_async(const call& c, std::shared_ptr<const sharded_keys> set,
                                               const set_payload& values, part_handler each, end_handler end) {
  servers_.refresh_membership();
  const server_group::pin_routing places(servers_);
  if (set->epoch != shared_.epoch && shared_.may_change) set = split_here(std::move(set));
  if (set->job != shared_.job || set->epoch != shared_.epoch)
    throw error("the key set was prepared for another job or other servers");
  prepare(*set);
  auto& g = open_group(c);
  const auto number = g.number;
  g.each_part = std::move(each);
  g.end = std::move(end);
  g.set = std::move(set);
  g.header.tag = values.tag;
  const finally sent{[&] { answered_part(g); }};
  const on_error failed{[&] { g.silence(); }};
  for (const auto& part : g.set->parts) {
    auto& chunk = g.add(part.channel, part.begin, part.end);
    if (!values.items.empty()) {
      std::size_t bytes = 0;
      for (auto k = part.begin; k < part.end; ++k)
        bytes += net::request_item_bytes + values.items[g.set->order[k]].bytes.size();
      auto* to = chunk.body.reserve(bytes);
      for (auto k = part.begin; k < part.end; ++k) to = net::write_item(to, {}, values.items[g.set->order[k]]);
    } else {
      auto* to = chunk.body.reserve(values.value_bytes * (part.end - part.begin));
      gather_ascending(to, values.numbers.data(), std::span(g.set->order).subspan(part.begin, part.end - part.begin),
                       values.value_bytes);
    }
    send_part(g, g.used - 1);
  }
  return number;
}

void multi_client::send_part(multi_request& g, std::size_t index) {
  auto& chunk = g.chunks[index];
  auto h = g.header;
  h.count = chunk.end - chunk.begin;
  shared_.window.at(g.number).channel = chunk.channel;
  ++g.unanswered;
  try {
    const auto s = servers_.send(chunk.channel, h, text_of(g.set->parts[index].digest), {}, chunk.body.bytes(), {},
                                 [this, &g, index](const kv_result& r) { receive_part(g, index, r); });
    if (chunk.place == 0) chunk.place = s;
    if (const auto& retained = shared_.window.at(s).retained; retained != nullptr) {
      retained->place = chunk.place;  // requests sent after the first attempt stay after it
      retained->set = g.set;
      retained->set_part = static_cast<std::uint32_t>(index);
    }
  } catch (...) {
    --g.unanswered;
    throw;
  }
}

void multi_client::receive_part(multi_request& g, std::size_t index, const kv_result& r) {
  const finally counted{[&] { answered_part(g); }};
  auto& chunk = g.chunks[index];
  if (r.header.result == net::status::unknown_set) {
    // The shard holds back later requests of this client until the request is retried after its keys.
    const server_group::pin_routing here(servers_);
    if (++chunk.attempts < most_attempts && !chunk.unprepared && g.set->epoch == shared_.epoch) {
      if (shared_.before) shared_.before(g.header.what, nullptr, nullptr);  // nothing may come between keys and request
      send_prepare(*g.set, g.set->parts[index],
                   [&g, index](const kv_result& prepared) { g.chunks[index].unprepared = !prepared.ok(); });
      return send_part(g, index);
    }
  }
  if (chunk.attempts != 0 && !r.ok() && g.set->epoch == shared_.epoch) {  // later requests must not stay held back
    net::request_header give_up;
    give_up.what = net::verb::ping;
    servers_.send(chunk.channel, give_up, {}, {}, {}, {}, nullptr);
  }
  if (g.each_part) g.each_part(std::span(g.set->order).subspan(chunk.begin, chunk.end - chunk.begin), r);
}

}  // namespace paracel
