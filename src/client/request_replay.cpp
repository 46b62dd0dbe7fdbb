// SPDX-License-Identifier: BSD-3-Clause
#include "client/request_replay.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/check.hpp"

namespace paracel {

namespace {

using net::verb;

/// Whether each item of the request is in exactly one part.
[[maybe_unused]] bool are_whole(const retained_request& r) {
  std::set<std::uint32_t> items;
  std::size_t n = 0;
  for (const auto& part : r.parts) {
    items.insert(part.items.begin(), part.items.end());
    n += part.items.size();
  }
  return n == r.items && items.size() == n;
}

}  // namespace

void request_replay::record_registration(const kvclt::call& c, std::string_view key,
                                         std::span<const std::byte> payload) {
  if (!net::defines(c.what)) return;
  const auto same = [&](const registration& r) {
    return r.what.what == c.what && r.key == key && std::ranges::equal(r.payload, payload);
  };
  if (std::ranges::any_of(registrations_, same)) return;
  registrations_.push_back({c, std::string(key), {payload.begin(), payload.end()}});
}

void request_replay::replay_registrations(
    const std::function<void(const kvclt::call&, std::string_view, std::span<const std::byte>)>& send) const {
  for (const auto& r : registrations_) send(r.what, r.key, r.payload);
}

void request_replay::record_renewed(std::uint32_t channel) {
  shared_.window.for_each_open([&](request_window::sequence, request_window::entry& e) {
    if (e.retained == nullptr) return;
    bool owes = false;
    for_each_owing(e, [&](std::uint32_t c) { owes = owes || c == channel; });
    if (!owes) return;
    e.retained->header.epoch = 0;  // as if sent before any membership
    shared_.left_behind = true;
  });
}

void request_replay::resend() {
  shared_.left_behind = false;
  const nonblocking_scope sending(shared_);
  auto& window = shared_.window;
  std::vector<std::tuple<bool, std::uint64_t, request_window::sequence>> due;  // definitions first
  window.for_each_open([&](request_window::sequence s, const request_window::entry& e) {
    if (e.retained == nullptr) return;
    const auto& r = *e.retained;
    if (r.header.epoch == shared_.epoch && (!r.parts.empty() || routes_.at(r.channel).client->serves())) return;
    due.emplace_back(!net::defines(r.header.what), r.place, s);
  });
  std::ranges::sort(due);
  for (const auto& [rest, place, s] : due)
    if (!window.answered(s)) resend(s);
  PARACEL_ASSERT(window.is_consistent());
}

/// May run the request's handler.
void request_replay::resend(request_window::sequence s) {
  auto& e = shared_.window.at(s);
  PARACEL_CHECK(shared_.window.is_open(s) && e.retained != nullptr && e.retained->header.sequence == s);
  auto& r = *e.retained;
  const auto what = r.header.what;
  if (net::kind_of(what) == net::verb_kind::key) return resend_whole(e, routes_.channel_of(r.header.partition));
  if (net::has_items(what)) return resend_split(e);
  if (what == verb::clear) return send_everywhere(e);
  if (what == verb::clock_tick || what == verb::clock_wait) return resend_whole(e, routes_.clock_channel());
  // A scan of servers that may change is restarted by its caller; a set is prepared again by the first request on it.
  if (net::traits_of(what).scope == net::verb_scope::slices && shared_.may_change)
    return shared_.complete_locally(s, net::status::stale_epoch, "the servers have changed");
  if (what == verb::set_prepare) return shared_.complete_locally(s, net::status::ok, {});
  if (const auto same = routes_.find(r.slot, r.incarnation, r.thread)) return resend_whole(e, *same);
  // All servers give the same reply about a function or a table.
  if (net::defines(what)) return resend_whole(e, routes_.channel_of(clock_partition));
  shared_.complete_locally(s, what == verb::ping ? net::status::ok : net::status::internal,
                           "s" + std::to_string(r.slot) + " is lost");
}

void request_replay::resend_whole(request_window::entry& e, std::uint32_t channel) {
  auto& r = *e.retained;
  r.channel = channel;
  e.channel = channel;
  const auto& to = routes_.at(channel);
  to.client->resend(to.thread, r.header, r.body, r.tail);
}

void request_replay::send_part(retained_request& r, request_part part, net::request_header h,
                               std::span<const std::byte> body) {
  r.header.epoch = shared_.epoch;
  const auto& to = routes_.at(part.channel);
  to.client->resend(to.thread, h, body, {});
  r.parts.push_back(std::move(part));
}

void request_replay::resend_split(request_window::entry& e) {
  auto& r = *e.retained;
  const request_items_view items(r);
  r.items = items.size();
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_channel;
  const auto place = [&](std::uint32_t i) { by_channel[routes_.channel_of(items.partition(i))].push_back(i); };
  if (r.parts.empty()) {
    for (std::uint32_t i = 0; i < items.size(); ++i) place(i);
    if (by_channel.size() == 1 && r.set == nullptr && r.rows == nullptr)
      return resend_whole(e, by_channel.begin()->first);
  } else {
    for (const auto& part : r.parts)
      if (!part.answered) std::ranges::for_each(part.items, place);
    std::erase_if(r.parts, [](const request_part& part) { return !part.answered; });
  }
  net::request_header h;
  std::vector<std::byte> body;
  for (auto& [channel, mine] : by_channel) {
    std::ranges::sort(mine);
    PARACEL_ASSERT(!mine.empty() && std::ranges::adjacent_find(mine) == mine.end());
    items.write(mine, h, body);
    send_part(r, {.channel = channel, .items = std::move(mine)}, h, body);
  }
}

void request_replay::send_everywhere(request_window::entry& e) {
  auto& r = *e.retained;
  const bool first = r.parts.empty() && r.header.epoch == shared_.epoch;
  r.parts.clear();
  r.items = 0;
  routes_.for_each_shard([&](std::uint32_t channel) {
    if (first && channel == r.channel) r.parts.push_back({.channel = channel});
    else send_part(r, {.channel = channel}, r.header, r.body);
  });
}

bool request_replay::accepts(request_window::entry& e, const net::reply_view& reply, const net::incoming& from) {
  auto& r = *e.retained;
  if (r.parts.empty()) return true;
  const auto bytes = from.tail ? from.tail.bytes() : reply.body;
  const auto part = std::ranges::find_if(r.parts, [&](const request_part& one) {
    const auto& asked = routes_.at(one.channel);
    return !one.answered && asked.client->connection(asked.thread) == from.channel;
  });
  // A reply to an earlier attempt, in another epoch, would be of other items.
  if (part == r.parts.end() || reply.header.epoch != shared_.epoch) return false;
  part->answered = true;
  part->header = reply.header;
  part->reply.assign(bytes.begin(), bytes.end());
  if (!std::ranges::all_of(r.parts, &request_part::answered)) return false;
  PARACEL_ASSERT(are_whole(r));
  const auto whole = merge(r.header.what, r.items, r.parts);
  const auto done = std::move(e.done);
  if (e.traced_since != 0) [[unlikely]]
    shared_.trace_answer(e, reply.header.sequence, whole.header.result, whole.body.size());
  shared_.window.close(e);
  shared_.run(done, {whole.header, whole.body, {}});
  return false;
}

}  // namespace paracel
