// SPDX-License-Identifier: BSD-3-Clause
//
// What a client does in a job with copies when the servers change: see the head of kvclt.hpp.
//
//   reply stale_epoch, or the heartbeat's thread --> board --> adopt: new ring, new channels
//                                                        --> new servers are told the functions and tables
//                                                        --> everything unanswered goes again, in order
//   reply reconnected, or silence even to a ping --> renew: a new connection
//                                                --> what is unanswered there goes again, in order
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "client/kvclt.hpp"

namespace paracel {

namespace {

using net::verb;

// Memory that requests may keep for the next ones.
constexpr std::size_t most_spare = 1024;
constexpr std::size_t most_spare_bytes = std::size_t{64} << 10;

constexpr bool is_single(verb v) noexcept { return v >= verb::pull && v <= verb::update_at; }
constexpr bool is_registration(verb v) noexcept {
  return v == verb::register_update || v == verb::register_bupdate || v == verb::register_filter || v == verb::table_open;
}
constexpr bool is_walk(verb v) noexcept {
  return v == verb::scan || v == verb::top_k || v == verb::reduce || v == verb::remove_if || v == verb::rows_scan;
}

}  // namespace

std::uint32_t kvclt::server_of(std::uint32_t channel) const noexcept {
  const auto after = std::ranges::upper_bound(first_channel_, channel);
  return static_cast<std::uint32_t>(after - first_channel_.begin()) - 1;
}

void kvclt::keep(pending& p, const net::request_header& h, std::uint32_t channel, std::span<const std::byte> payload,
                 const blob& tail) {
  if (p.kept == nullptr) {
    if (spare_.empty()) {
      p.kept = std::make_unique<kept_request>();
    } else {
      p.kept = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  auto& k = *p.kept;
  const auto server = server_of(channel);
  k.header = h;
  k.place = h.sequence;
  k.body.assign(front_.begin() + net::request_header_bytes, front_.end());
  k.body.insert(k.body.end(), payload.begin(), payload.end());
  k.tail = tail;
  k.channel = channel;
  k.slot = members_.servers[server].slot;
  k.incarnation = members_.servers[server].incarnation;
  k.thread = channel - first_channel_[server];
}

void kvclt::recycle(pending& p) noexcept {
  auto k = std::move(p.kept);
  if (spare_.size() >= most_spare || k->body.capacity() > most_spare_bytes) return;
  k->tail = {};
  k->set = nullptr;
  k->parts.clear();
  if (spare_.capacity() == 0) spare_.reserve(most_spare);
  spare_.push_back(std::move(k));
}

void kvclt::remember(const call& c, std::string_view key, std::span<const std::byte> payload) {
  if (!is_registration(c.what)) return;
  const auto same = [&](const registration& r) {
    return r.what.what == c.what && r.key == key && std::ranges::equal(r.payload, payload);
  };
  if (std::ranges::any_of(registrations_, same)) return;
  registrations_.push_back({c, std::string(key), {payload.begin(), payload.end()}});
}

std::shared_ptr<const key_parts> kvclt::here(std::shared_ptr<const key_parts> set) {
  auto& now = sets_here_[set];
  if (now == nullptr) now = split(set->keys);
  return now;
}

// ---- a new membership ---------------------------------------------------------------------------------------------

void kvclt::follow_newest() {
  if (in_handler_ || staying_ != 0) return;
  if (behind()) adopt(*board_->newest());
  if (broken_) {
    broken_ = false;
    for (std::uint32_t channel = 0; channel < channels_.size(); ++channel)
      if (channels_[channel].broken) renew(channel);
  }
  if (left_behind_) send_again();
}

void kvclt::adopt(const membership& fresh) {
  const auto heads = [](const server_entry& s) { return may_head(s.state); };
  if (std::ranges::none_of(fresh.servers, heads)) return;  // the scheduler ends the job
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<channel_state>> open;  // by slot and incarnation
  for (std::uint32_t server = 0; server < members_.servers.size(); ++server) {
    const auto& s = members_.servers[server];
    auto& lines = open[{s.slot, s.incarnation}];
    for (std::size_t i = 0; i < s.shards.size() + 2; ++i) lines.push_back(std::move(channels_[first_channel_[server] + i]));
  }
  std::vector<int> with_sets;  // their shards may hold requests back until a set comes again
  for (const auto& [channel, low, high] : prepared_) with_sets.push_back(channels_[channel].number);

  members_ = fresh;
  router_ = key_router(members_);
  open_channels();
  std::vector<std::uint32_t> strangers;
  for (std::uint32_t server = 0; server < members_.servers.size(); ++server) {
    const auto& s = members_.servers[server];
    if (!takes_part(s.state)) continue;
    const auto known = open.find({s.slot, s.incarnation});
    if (known == open.end()) {
      strangers.push_back(server);
      continue;
    }
    for (std::size_t i = 0; i < known->second.size(); ++i) channels_[first_channel_[server] + i] = std::move(known->second[i]);
    open.erase(known);
  }
  for (const auto& [who, lines] : open)
    for (const auto& line : lines)
      if (line.number >= 0) port_->disconnect(line.number);
  prepared_.clear();
  sets_here_.clear();
  parked_.clear();  // whoever subscribes looks at the epoch
  left_behind_ = true;

  const no_waiting sending(*this);
  for (const auto server : strangers) tell_new_server(server);
  net::request_header h;
  if (subscribes_) {
    h.what = verb::subscribe;
    send(clock_channel(), h, {}, {}, {}, {}, nullptr);
  }
  for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
    if (channels_[channel].number < 0 || std::ranges::count(with_sets, channels_[channel].number) == 0) continue;
    h = {};
    h.what = verb::ping;  // gives up what is held back
    send(channel, h, {}, {}, {}, {}, nullptr);
  }
}

// ---- a connection breaks --------------------------------------------------------------------------------------------

/// The header of something that is about to be sent there.
void kvclt::begin_stream(std::uint32_t channel, net::request_header& h) noexcept {
  auto& c = channels_[channel];
  h.flags = static_cast<std::uint16_t>((h.flags & ~net::flag_first) | net::flag_stream);
  if (!c.open || std::exchange(c.begun, true)) return;
  h.flags |= net::flag_first;
}

void kvclt::note_broken(int number) noexcept {
  for (auto& c : channels_)
    if (c.number == number) {
      broken_ = c.broken = true;
      c.care.broke();
    }
}

void kvclt::note_alive(int number) noexcept {
  for (auto& c : channels_)
    if (c.number == number) c.care.answered();
}

/// Asks whether a thread lives. Nobody waits for the answer: it is no request of the window.
void kvclt::ping(std::uint32_t channel) {
  net::request_header h;
  h.what = verb::ping;
  h.count = net::ping_alive;
  h.job = members_.job;
  h.client = incarnation_;
  h.low_watermark = low_;
  h.rank = rank_;
  h.epoch = members_.epoch;
  begin_stream(channel, h);
  net::request_bytes head;
  net::encode(h, head);
  transmit(channels_[channel], {.head = head});
}

/// Nothing has come for another `time`. After a while those that owe an answer are asked whether they live.
void kvclt::note_silence(std::chrono::nanoseconds time) {
  waited_ += time;
  silence_ += time;
  if (silence_ < net::late) return;
  silence_ = {};
  std::set<std::uint32_t> owing;
  for (auto s = low_; s < next_; ++s) {
    const auto& p = slot(s);
    if (!p.open || p.group) continue;
    if (p.kept == nullptr || p.kept->parts.empty()) {
      owing.insert(p.channel);
      continue;
    }
    for (const auto& part : p.kept->parts)
      if (!part.answered) owing.insert(part.channel);
  }
  for (const auto channel : owing) {
    auto& c = channels_[channel];
    if (!c.open) continue;
    if (c.care.look(waited_) == net::line_care::advice::ping || !keeps_) ping(channel);
    else broken_ = c.broken = true;  // it is made anew as soon as nobody counts on places
  }
}

/// What passes between two looks is silence too, but not what this process sleeps or computes.
void kvclt::note_silence_while_polling() {
  const std::chrono::nanoseconds now =
      (options_.time != nullptr ? options_.time->now() : net::boot_clock::now()).time_since_epoch();
  const auto passed = now - std::exchange(polled_, now);
  note_silence(std::clamp<std::chrono::nanoseconds>(passed, std::chrono::nanoseconds{0}, follow_interval));
}

/// A new connection in place of one over which something may have been lost. What is unanswered there will go again.
void kvclt::renew(std::uint32_t channel) {
  auto& c = channels_[channel];
  if (c.number >= 0) port_->disconnect(c.number);
  c.number = -1;
  c.begun = false;
  c.broken = false;
  c.care.renewed();
  std::erase_if(prepared_, [&](const auto& set) { return std::get<0>(set) == channel; });
  const auto was_sent_there = [&](const pending& p) {
    if (p.kept->parts.empty()) return p.channel == channel;
    return std::ranges::any_of(p.kept->parts, [&](const auto& part) { return !part.answered && part.channel == channel; });
  };
  for (auto s = low_; s < next_; ++s) {
    const auto& p = slot(s);
    if (!p.open || p.group || p.kept == nullptr || !was_sent_there(p)) continue;
    p.kept->header.epoch = 0;  // as if it came from before any membership
    left_behind_ = true;
  }
  const no_waiting sending(*this);
  if (subscribes_ && channel == clock_channel()) {
    net::request_header h;
    h.what = verb::subscribe;
    send(channel, h, {}, {}, {}, {}, nullptr);
  }
  std::vector<subscription> lost;
  for (auto at = parked_.begin(); at != parked_.end();) {
    const auto here = at++;
    if (here->second.channel == channel && here->second.done) lost.push_back(std::move(parked_.extract(here).mapped()));
  }
  for (const auto& l : lost) {  // nothing has changed: who wants to know of the next change asks again
    net::reply_header nothing;
    nothing.what = verb::subscribe;
    nothing.clock = l.clock;
    run(l.done, {nothing, {}, {}});
  }
}

/// Before it gets any request that needs them.
void kvclt::tell_new_server(std::uint32_t server) {
  for (const auto& r : registrations_) {
    for (std::uint32_t shard = 0; shard < members_.servers[server].shards.size(); ++shard) {
      auto h = header_of(r.what);
      send(first_channel_[server] + shard, h, r.key, {}, r.payload, {}, nullptr);
    }
  }
}

// ---- sending again ------------------------------------------------------------------------------------------------

void kvclt::send_again() {
  left_behind_ = false;
  const no_waiting sending(*this);
  std::vector<std::tuple<bool, std::uint64_t, sequence>> due;  // first what others may name
  for (auto s = low_; s < next_; ++s) {
    const auto& p = slot(s);
    if (!p.open || p.group || p.kept == nullptr) continue;
    const auto& k = *p.kept;
    if (k.header.epoch == members_.epoch && (!k.parts.empty() || serves(k.channel))) continue;
    due.emplace_back(!is_registration(k.header.what), k.place, s);
  }
  std::ranges::sort(due);
  for (const auto& [rest, place, s] : due)
    if (!answered(s)) send_again(s);
}

/// May run the request's handler.
void kvclt::send_again(sequence s) {
  auto& p = slot(s);
  auto& k = *p.kept;
  const auto what = k.header.what;
  if (is_single(what)) return send_kept(p, channel_of(k.header.partition));
  if (request_items_view::takes(what)) return send_apart(p);
  if (what == verb::clear) return ask_everywhere(p);
  if (what == verb::clock_tick || what == verb::clock_wait) return send_kept(p, clock_channel());
  // A walk is its caller's to begin anew; a set is prepared anew by the first request on it.
  if (is_walk(what)) return answer_here(s, net::status::stale_epoch, "the servers have changed");
  if (what == verb::set_prepare) return answer_here(s, net::status::ok, {});
  for (std::uint32_t server = 0; server < members_.servers.size(); ++server) {
    const auto& to = members_.servers[server];
    if (to.slot == k.slot && to.incarnation == k.incarnation && takes_part(to.state))
      return send_kept(p, first_channel_[server] + k.thread);
  }
  // All servers say the same of a function or a table.
  if (is_registration(what)) return send_kept(p, channel_of(clock_partition));
  answer_here(s, what == verb::ping ? net::status::ok : net::status::internal, "s" + std::to_string(k.slot) + " is lost");
}

void kvclt::send_kept(pending& p, std::uint32_t channel) {
  auto& k = *p.kept;
  k.header.epoch = members_.epoch;
  k.header.low_watermark = low_;
  begin_stream(channel, k.header);
  k.channel = channel;
  p.channel = channel;
  net::request_bytes head;
  net::encode(k.header, head);
  transmit(channels_[channel], {.head = head, .body = k.body, .tail = k.tail});
}

void kvclt::send_part(pending& p, request_part part, net::request_header h, std::span<const std::byte> body) {
  auto& k = *p.kept;
  k.header.epoch = members_.epoch;
  h.epoch = members_.epoch;
  h.low_watermark = low_;
  begin_stream(part.channel, h);
  net::request_bytes head;
  net::encode(h, head);
  transmit(channels_[part.channel], {.head = head, .body = body});
  k.parts.push_back(std::move(part));
}

void kvclt::send_apart(pending& p) {
  auto& k = *p.kept;
  const request_items_view items(k);
  k.items = items.size();
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_channel;
  const auto place = [&](std::uint32_t i) { by_channel[channel_of(items.partition(i))].push_back(i); };
  if (k.parts.empty()) {
    for (std::uint32_t i = 0; i < items.size(); ++i) place(i);
    if (by_channel.size() == 1 && k.set == nullptr) return send_kept(p, by_channel.begin()->first);
  } else {
    for (const auto& part : k.parts)
      if (!part.answered) std::ranges::for_each(part.items, place);
    std::erase_if(k.parts, [](const request_part& part) { return !part.answered; });
  }
  net::request_header h;
  std::vector<std::byte> body;
  for (auto& [channel, mine] : by_channel) {
    std::ranges::sort(mine);
    items.write(mine, h, body);
    send_part(p, {.channel = channel, .items = std::move(mine)}, h, body);
  }
}

/// One number for all shards: a partition that moves between two of them is cleared once.
void kvclt::clear_everywhere(const call& c, const handler& each) {
  sequence s = 0;
  {
    const stay here(*this);
    auto h = header_of(c);
    s = send(channel_of(clock_partition), h, {}, {}, {}, {}, [&each](const kv_result& r) {
      if (each) each(r);
    });
    ask_everywhere(slot(s));
  }
  wait(s);
}

void kvclt::ask_everywhere(pending& p) {
  auto& k = *p.kept;
  const bool first = k.parts.empty() && k.header.epoch == members_.epoch;
  k.parts.clear();
  for (std::uint32_t server = 0; server < members_.servers.size(); ++server) {
    for (std::uint32_t shard = 0; shard < members_.servers[server].shards.size(); ++shard) {
      const auto channel = first_channel_[server] + shard;
      if (!serves(channel)) continue;
      if (first && channel == k.channel) k.parts.push_back({.channel = channel});
      else send_part(p, {.channel = channel}, k.header, k.body);
    }
  }
}

// ---- answers ------------------------------------------------------------------------------------------------------

void kvclt::answer_here(sequence s, net::status result, std::string_view text) {
  auto& p = slot(s);
  net::reply_header h;
  h.what = p.what;
  h.sequence = s;
  h.result = result;
  const auto done = std::move(p.done);
  close(p);
  run(done, {h, net::bytes_of(text), {}});
}

/// Whether the reply is the answer to the whole request. Parts are put together here, and then the handler has run.
bool kvclt::takes(pending& p, const net::reply_view& reply) {
  auto& k = *p.kept;
  const auto bytes = incoming_.tail ? incoming_.tail.bytes() : reply.body;
  if (reply.header.result == net::status::stale_epoch) {
    try {
      board_->put(membership::from_json(net::text_of(bytes)));
    } catch (const protocol_error&) {  // the scheduler's word comes by itself
    }
    return false;
  }
  if (k.parts.empty()) return true;
  const auto part = std::ranges::find_if(k.parts, [&](const request_part& one) {
    return !one.answered && channels_[one.channel].number == incoming_.channel;
  });
  // An answer to how it was asked before, in another epoch, would be of other items.
  if (part == k.parts.end() || reply.header.epoch != members_.epoch) return false;
  part->answered = true;
  part->header = reply.header;
  part->reply.assign(bytes.begin(), bytes.end());
  if (!std::ranges::all_of(k.parts, &request_part::answered)) return false;
  const auto whole = merge(k.header.what, k.items, k.parts);
  const auto done = std::move(p.done);
  close(p);
  run(done, {whole.header, whole.body, {}});
  return false;
}

}  // namespace paracel
