// SPDX-License-Identifier: BSD-3-Clause
#include "ps/node_channels.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <paracel/error.hpp>

#include "net/protocol.hpp"
#include "ps/base.h"
#include "ps/wire.hpp"

namespace paracel::ps_compat {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds idle{20};
constexpr std::uint64_t most_unacknowledged = 256;  // messages, before a reply acknowledges them while more arrive
constexpr std::size_t most_senders = 1U << 16U;

}  // namespace

node_channels::node_channels(net::transport& over, const options& o, const std::vector<std::string>& addresses)
    : options_(o), out_(over.open()), in_(over.open()), drops_(static_cast<std::minstd_rand::result_type>(o.client)) {
  for (const auto& a : addresses) addresses_.push_back(in_->bind(a));
}

node_channels::~node_channels() {
  if (thread_.joinable()) stop(milliseconds{0});
}

void node_channels::start(deliver_function deliver, tick_function tick) {
  deliver_ = std::move(deliver);
  tick_ = std::move(tick);
  thread_ = std::thread([this] { run(); });
}

void node_channels::stop(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  const auto all_arrived = [&] {
    const mutex_lock lock(mutex_);
    serve_replies();
    return std::ranges::none_of(to_, [](const auto& t) { return t.second.channel.keeps(); });
  };
  while (!all_arrived() && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds{1});
  stopping_ = true;
  thread_.join();
}

void node_channels::connect(std::uint64_t client, const std::string& address) {
  const mutex_lock lock(mutex_);
  if (const auto at = to_.find(client); at != to_.end()) {
    if (at->second.channel.address() == address) return;
    at->second.channel.disconnect();
    to_.erase(at);
  }
  const net::reliable_channel::settings how{.policy = net::on_loss::resend, .silent = options_.resend / 4};
  to_.emplace(client, outgoing_node{{*out_, address, how}, 0, steady_clock::now(), {}});
}

void node_channels::disconnect(std::uint64_t client) {
  const mutex_lock lock(mutex_);
  if (const auto at = to_.find(client); at != to_.end()) {
    at->second.channel.disconnect();
    to_.erase(at);
  }
  if (const auto at = from_.find(client); at != from_.end()) at->second->ignored = true;
}

net::request_header node_channels::header_for(const outgoing_node& to, std::uint64_t client) {
  net::request_header h;
  h.what = net::verb::message;
  h.job = options_.job;
  h.client = options_.client;
  h.sequence = to.last;
  h.low_watermark = to.channel.keeps() ? to.channel.oldest_kept() : to.last + 1;
  h.rank = static_cast<std::uint32_t>(node_.load());
  if (const auto from = from_.find(client); from != from_.end()) h.function = from->second->taken;
  return h;
}

std::int64_t node_channels::send(std::uint64_t client, const ::ps::Message& m) {
  auto bytes = encode(m);
  const auto size = static_cast<std::int64_t>(bytes.body.size() + bytes.tail.size());
  const mutex_lock lock(mutex_);
  const auto at = to_.find(client);
  if (at == to_.end()) return -1;
  auto& to = at->second;
  if (!to.channel.keeps()) to.progressed = steady_clock::now();
  ++to.last;
  const auto h = header_for(to, client);
  if (const auto from = from_.find(client); from != from_.end()) from->second->acknowledged = h.function;
  to.channel.send_kept(h, shared_buffer::holding(std::move(bytes.body)), std::move(bytes.tail));
  serve_replies();
  return size;
}

std::chrono::nanoseconds node_channels::unacknowledged(std::uint64_t client) {
  const mutex_lock lock(mutex_);
  const auto at = to_.find(client);
  if (at == to_.end() || !at->second.channel.keeps()) return {};
  return steady_clock::now() - at->second.progressed;
}

bool node_channels::has_answered(std::uint64_t client) {
  const mutex_lock lock(mutex_);
  const auto at = to_.find(client);
  if (at == to_.end() || at->second.last == 0) return false;
  return !at->second.channel.keeps() || at->second.channel.oldest_kept() > 1;
}

void node_channels::was_away(std::chrono::nanoseconds time) {
  const mutex_lock lock(mutex_);
  for (auto& [client, to] : to_) to.progressed += std::chrono::duration_cast<steady_clock::duration>(time);
}

void node_channels::run() {
  while (!stopping_) {
    const auto begin = steady_clock::now();
    bool any = in_->receive(received_, owes_ ? idle : 5 * idle);
    for (; any && !stopping_;
         any = steady_clock::now() - begin < 5 * idle && in_->receive(received_, milliseconds{0})) {
      owes_ = true;
      on_message();
    }
    if (steady_clock::now() - looked_ < idle) continue;
    looked_ = steady_clock::now();
    acknowledge_all();
    check_channels();
    tick_();
  }
  acknowledge_all();
}

void node_channels::reply(const net::peer& to, std::uint64_t sequence, net::verb what, net::status result,
                          std::uint64_t next) {
  net::reply_header h;
  h.what = what;
  h.sequence = sequence;
  h.result = result;
  h.value_version = next;
  net::reply_bytes head;
  net::encode(h, head);
  in_->reply(to, {.head = head});
}

/// Any process may connect: messages from outside this job are refused.
void node_channels::on_message() {
  net::request_view m;
  const char* bad = net::decode(received_.frame, received_.tail.size(), m);
  const auto& h = m.header;
  const bool asks = h.what == net::verb::ping;
  const auto refuse = [&](net::status why) { reply(received_.from, h.sequence, h.what, why, 0); };
  if (bad != nullptr || (h.what != net::verb::message && !asks) || h.client == 0)
    return refuse(net::status::bad_request);
  if (h.job != options_.job) return refuse(net::status::wrong_job);
  if (!asks && options_.drop_percent > 0 && static_cast<int>(drops_() % 100) < options_.drop_percent) return;
  const auto key = !options_.is_scheduler && h.rank == ::ps::kScheduler ? scheduler : h.client;
  incoming_node* from = nullptr;
  {
    const mutex_lock lock(mutex_);
    auto at = from_.find(key);
    if (at == from_.end()) {
      if (from_.size() >= most_senders) return refuse(net::status::out_of_memory);
      if (h.low_watermark > 1) return refuse(net::status::conflict);  // what it sent before went to another process
      at = from_.emplace(key, std::make_unique<incoming_node>()).first;
      at->second->client = h.client;
    }
    from = at->second.get();
  }
  // What has arrived from an ignored sender is still acknowledged.
  if (from->client != h.client || (from->ignored && h.sequence > from->taken)) return refuse(net::status::conflict);
  from->from = received_.from;
  from->sequence = h.sequence;
  acknowledge(key, h.function + 1);
  const auto taken = from->taken.load();
  if (h.sequence > taken + (asks ? 0 : 1))
    return reply(from->from, h.sequence, h.what, net::status::connection_reset, taken + 1);
  if (asks || h.sequence <= taken) return reply(from->from, h.sequence, h.what, net::status::ok, taken + 1);
  ::ps::Message message;
  try {
    message = decode(m.body, std::move(received_.tail));
  } catch (const std::exception&) {
    return refuse(net::status::bad_request);
  }
  from->taken = taken + 1;
  if (taken + 1 - from->acknowledged > most_unacknowledged) {
    from->acknowledged = taken + 1;
    reply(from->from, h.sequence, h.what, net::status::ok, taken + 2);
  }
  deliver_({key, static_cast<int>(h.rank)}, std::move(message));
}

void node_channels::acknowledge(std::uint64_t client, std::uint64_t next) {
  const mutex_lock lock(mutex_);
  const auto at = to_.find(client);
  if (at == to_.end() || !at->second.channel.keeps() || at->second.channel.oldest_kept() >= next) return;
  at->second.channel.acknowledge_before(next);
  at->second.progressed = steady_clock::now();
}

void node_channels::acknowledge_all() {
  owes_ = false;
  const mutex_lock lock(mutex_);
  for (auto& [client, from] : from_) {
    if (from->acknowledged == from->taken) continue;
    from->acknowledged = from->taken.load();
    reply(from->from, from->sequence, net::verb::message, net::status::ok, from->taken + 1);
  }
}

void node_channels::serve_replies() {
  while (out_->receive(reply_, milliseconds{0})) {
    const auto at = std::ranges::find_if(to_, [&](const auto& t) { return t.second.channel.owns(reply_.channel); });
    net::reply_view r;
    if (at == to_.end() || net::decode(reply_.frame, reply_.tail.size(), r) != nullptr) continue;
    auto& to = at->second;
    if (r.header.result != net::status::ok && r.header.result != net::status::connection_reset) continue;
    const bool kept = to.channel.keeps();
    const auto oldest = kept ? to.channel.oldest_kept() : 0;
    to.channel.take(r.header, reply_.channel);
    to.channel.acknowledge_before(r.header.value_version);
    if (kept && (!to.channel.keeps() || to.channel.oldest_kept() > oldest)) to.progressed = steady_clock::now();
    if (to.channel.is_broken()) to.channel.renew();
  }
}

void node_channels::check_channels() {
  const mutex_lock lock(mutex_);
  serve_replies();
  const auto now = steady_clock::now();
  for (auto& [client, to] : to_) {
    if (!to.channel.keeps() || now - to.progressed < options_.resend || now - to.looked < options_.resend / 4) continue;
    to.looked = now;
    to.channel.check_health(now.time_since_epoch(), header_for(to, client),
                            {.heard = to.progressed.time_since_epoch()});
    if (to.channel.is_broken()) to.channel.renew();
  }
}

}  // namespace paracel::ps_compat
