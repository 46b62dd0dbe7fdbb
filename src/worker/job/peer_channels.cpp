// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/peer_channels.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <paracel/error.hpp>

#include "net/collective_codec.hpp"
#include "net/message_limit.hpp"
#include "worker/job/usage.hpp"

namespace paracel {

namespace {

// A message is late when it has been unacknowledged at this many checks in a row.
constexpr int late_checks = 4;
// As many messages go through ZeroMQ before a direct connection is offered.
constexpr std::uint64_t first_messages = 4;
// How often, and how long, a send waits until a direct connection can be used.
constexpr std::uint64_t messages_a_turning = 8;
constexpr int most_turnings = 16;
constexpr std::chrono::milliseconds longest_turning{2};
// What is received over a direct connection is acknowledged with the next message there, or when it is this much, or
// before this worker sleeps.
constexpr std::size_t most_unsaid_bytes = std::size_t{1} << 20U;
constexpr std::size_t bytes_of_a_message = 4096;  // counted for each, besides its own
// A worker that waits looks at its connections for this long before it sleeps, and yields its processor in between: to
// look without yielding for even 20 us makes four workers on two processors take 1.5 times as long.
constexpr std::chrono::microseconds longest_look{1000};
constexpr unsigned looks_between_ports = 16;

std::string worker_named(std::uint32_t rank) { return "worker " + std::to_string(rank); }

}  // namespace

peer_channels::peer_channels(options o, std::unique_ptr<net::port> bound)
    : options_(std::move(o)), port_(std::move(bound)) {
  if (options_.link_host.empty() || options_.size > direct_links::most_workers || !port_->waits_beside()) return;
  if (options_.encrypts && !net::link_box::is_available()) return;
  links_.emplace(direct_links::options{.host = options_.link_host,
                                       .encrypts = options_.encrypts,
                                       .rank = options_.rank,
                                       .client = options_.client,
                                       .most_message_bytes = options_.max_message_bytes});
}

/// The channel to a peer; the first message opens it.
peer_channels::outgoing_peer& peer_channels::reach(std::uint32_t rank) {
  const auto found = to_.find(rank);
  if (found != to_.end()) return found->second;
  const auto place = options_.find(rank);
  if (!place.gone.empty()) throw network_error("cannot send to " + worker_named(rank) + ": " + place.gone, false);
  met_.try_emplace(rank, place.turn);
  const net::reliable_channel::settings how{.policy = net::on_loss::resend, .silent = options_.doubt / late_checks};
  return to_.emplace(rank, outgoing_peer{{*port_, place.address, how}, place.turn}).first->second;
}

/// For the message that was numbered last, or a ping that asks whether it has arrived.
net::request_header peer_channels::header_for(const outgoing_peer& p) const {
  net::request_header h;
  h.what = net::verb::message;
  h.job = options_.job;
  h.client = options_.client;
  h.sequence = p.last;
  h.low_watermark = p.channel.keeps() ? p.channel.oldest_kept() : p.last + 1;
  h.rank = options_.rank;
  h.epoch = options_.turn;
  return h;
}

void peer_channels::check_link(std::uint32_t rank, outgoing_peer& p) {
  const auto oldest = p.channel.keeps() ? p.channel.oldest_kept() : 0;
  if (std::exchange(p.oldest, oldest) != oldest) p.checks = 0;
  if (oldest == 0 || ++p.checks <= late_checks) return;
  if (auto* const over = p.on_link ? links_->find(rank) : nullptr; over != nullptr) {
    if (over->link->is_silent()) return links_->close(rank);
    // A worker that computes reads nothing. But one that answers pings, and has not received what its host has
    // acknowledged, never will.
    if (!over->link->has_arrived()) return;
  }
  // Between messages a worker may compute for any length of time, and answers nothing: not over a probe either.
  p.channel.check_health(steady_clock::now().time_since_epoch(), header_for(p), {});
  if (p.channel.is_broken()) p.channel.renew();
}

/// Another process is this worker now: the next message to it opens a channel.
void peer_channels::forget_before(std::uint32_t rank, std::uint32_t turn) {
  if (links_) links_->forget_before(rank, turn);
  const auto p = to_.find(rank);
  if (p == to_.end() || p->second.turn >= turn) return;
  p->second.channel.disconnect();
  to_.erase(p);
}

void peer_channels::send(const message_address& to, shared_buffer bytes, bool waits,
                         std::optional<milliseconds> limit) {
  const auto rank = static_cast<std::uint32_t>(to.rank);
  if (rank == options_.rank) {
    const auto b = bytes.bytes();
    arrived_.arrive({{to.rank, to.tag, to.communicator}, byte_vector(b.begin(), b.end())});
    return;
  }
  if (options_.used != nullptr) options_.used->add({1, net::request_header_bytes + bytes.size(), 0});
  net::check_message_size({.head = bytes.bytes()}, {.max_message_bytes = options_.max_message_bytes});
  if (links_) turn_to_link(rank);
  while (is_linked(rank) && links_->find(rank) == nullptr && read_links()) {  // it has broken: what it kept goes first
  }
  auto& p = reach(rank);  // until something is received: the worker may be replaced
  ++p.last;
  auto h = header_for(p);
  h.function = to.communicator;
  h.table = static_cast<std::uint32_t>(to.tag);
  // Acknowledgements are read only now and then: to look for them costs as much as a short message.
  p.unread_bytes += bytes.size() + bytes_of_a_message;
  transmit(rank, p, h, std::move(bytes));
  if (!p.on_link || p.unread_bytes >= most_unsaid_bytes) {
    p.unread_bytes = 0;
    while (progress(milliseconds{0})) {
    }
  }
  if (!waits) return;
  const auto begin = steady_clock::now();
  growing_timer doubt(options_.patience, options_.doubt);
  while (unacknowledged_bytes(rank) > options_.window_bytes) {
    if (progress(options_.patience) && unacknowledged_bytes(rank) <= options_.window_bytes) return;
    check_links();
    if (limit && steady_clock::now() - begin > *limit)
      throw network_error(
          worker_named(rank) + " has not received what was sent to it, for " + std::to_string(limit->count()) + " ms",
          true);
    if (doubt.has_passed()) question(rank, "cannot send to ");
  }
}

/// A message that answers one usually overtakes the acknowledgement of that one, so without a wait the first moment in
/// which nothing is unacknowledged may be late. It is short, and rare: that worker may be computing.
void peer_channels::turn_to_link(std::uint32_t rank) {
  const auto waits = [&]() -> outgoing_peer* {
    const auto p = to_.find(rank);
    if (p == to_.end() || p->second.on_link || !p->second.channel.keeps() || links_->find(rank) == nullptr)
      return nullptr;
    return &p->second;
  };
  auto* const p = waits();
  if (p == nullptr || p->last % messages_a_turning != 0 || p->turnings == most_turnings) return;
  ++p->turnings;
  for (const auto end = steady_clock::now() + longest_turning; waits() != nullptr && steady_clock::now() < end;)
    (void)progress(milliseconds{1});
}

/// Keeps the message that was numbered last, and sends it on its way.
void peer_channels::transmit(std::uint32_t rank, outgoing_peer& p, net::request_header& h, shared_buffer bytes) {
  const bool as_tail = net::travels_as_tail(bytes.size());
  auto* const over = links_ ? links_->find(rank) : nullptr;
  if (over != nullptr && over->turn == p.turn && (p.on_link || !p.channel.keeps())) {
    p.on_link = true;
    p.channel.keep(h, as_tail ? shared_buffer{} : bytes, as_tail ? bytes : shared_buffer{});
    const auto received = taken_over(rank, *over);
    over->link->acknowledged = received;
    over->link->unsaid_bytes = 0;
    over->link->send({.received = received,
                      .number = h.sequence,
                      .communicator = h.function,
                      .tag = static_cast<std::int32_t>(h.table),
                      .size = bytes.size()},
                     bytes);
    if (over->link->has_queued()) links_->hand_over(*over);
    return;
  }
  if (as_tail) p.channel.send_kept(h, {}, std::move(bytes));
  else p.channel.send_kept(h, std::move(bytes), {});
  if (!links_ || p.last < first_messages) return;
  if (auto offer = links_->offer(rank, p.turn); !offer.empty()) {
    ++p.last;
    auto o = header_for(p);
    o.function = direct_links::communicator;
    p.channel.send_kept(o, shared_buffer::holding(std::move(offer)), {});
  }
}

std::optional<received_message> peer_channels::take(message_matcher::ticket t, std::optional<milliseconds> limit,
                                                    const side_work& meanwhile) {
  const auto begin = steady_clock::now();
  growing_timer doubt(options_.patience, options_.doubt);
  for (;;) {
    do {
      if (links_) {
        if (auto message = arrived_.take(t)) return message;
      }
    } while (progress(milliseconds{0}));
    if (auto message = arrived_.take(t)) return message;
    auto wait = std::min(options_.patience, meanwhile.interval);
    if (limit) {
      const auto left = std::chrono::ceil<milliseconds>(begin + *limit - steady_clock::now());
      if (left.count() <= 0) return std::nullopt;
      wait = std::min(wait, left);
    }
    if (!progress(wait) && meanwhile.run) {
      meanwhile.run([&] {
        while (progress(milliseconds{0})) {
        }
        return !arrived_.has(t);
      });
    }
    check_links();
    // What has arrived is received even from a peer that is gone.
    if (auto message = arrived_.take(t)) return message;
    if (!doubt.has_passed()) continue;
    const auto from = arrived_.asked(t).rank;
    if (from == any_source) question_all();
    else question(static_cast<std::uint32_t>(from), "nothing more can arrive from ");
  }
}

void peer_channels::attend(std::uint32_t rank, bool doubts) {
  while (progress(milliseconds{0})) {
  }
  if (doubts) question(rank, "nothing more can arrive from ");
}

bool peer_channels::is_gone(std::uint32_t rank) const {
  const auto place = options_.find(rank);
  return !place.gone.empty() && !place.awaited;
}

void peer_channels::check_links() {
  while (progress(milliseconds{0})) {
  }
  const auto now = steady_clock::now();
  if (now - links_checked_ < options_.doubt / late_checks) return;
  links_checked_ = now;
  for (auto& [rank, p] : to_) check_link(rank, p);
  (void)read_links();
}

bool peer_channels::is_linked(std::uint32_t rank) const {
  const auto p = to_.find(rank);
  return p != to_.end() && p->second.on_link;
}

std::size_t peer_channels::unacknowledged_bytes(std::uint32_t rank) const {
  const auto p = to_.find(rank);
  return p == to_.end() ? 0 : p->second.channel.kept_bytes();
}

bool peer_channels::flush(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  // A worker that computes acknowledges nothing, but its host does. What that does not take in time goes to ZeroMQ,
  // which takes all of it.
  const auto most_on_links = end - limit * 3 / 4;
  const auto is_done = [this](const auto& p) {
    auto* const over = p.second.on_link ? links_->find(p.first) : nullptr;
    return !p.second.channel.keeps() || (over != nullptr && over->link->is_heard() && over->link->has_arrived());
  };
  for (;;) {
    while (progress(milliseconds{0})) {
    }
    acknowledge_all();
    if (std::ranges::all_of(to_, is_done)) return true;
    if (steady_clock::now() >= most_on_links)
      for (const auto& p : to_)
        if (p.second.on_link && !is_done(p)) links_->close(p.first);
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
    if (left.count() <= 0) return false;
    check_links();
    (void)progress(std::min(left, options_.patience));
  }
}

/// Checks whether a silent peer is still up. It counts as gone when found gone twice in a row with nothing received
/// from it in between: what it sent before it left may still have been in flight.
void peer_channels::question(std::uint32_t rank, const char* what) {
  if (rank != options_.rank) {
    const auto place = options_.find(rank);
    const auto met = met_.find(rank);
    const bool replaced = met != met_.end() && place.turn != met->second;
    if (replaced && place.gone.empty())
      throw network_error(what + worker_named(rank) + ": another process has replaced it", true);
    if (place.gone.empty()) absences_.erase(rank);
    else if (++absences_[rank] > 1) throw network_error(what + worker_named(rank) + ": " + place.gone, true);
  }
  // The peer may be waiting for a third one, which needs a message from here.
  check_links();
}

/// A receive from any source fails when no worker is left that could send.
void peer_channels::question_all() {
  check_links();
  std::string last;
  for (std::uint32_t r = 0; r < options_.size; ++r) {
    if (r == options_.rank) continue;
    const auto place = options_.find(r);
    if (place.gone.empty() || place.awaited) {
      absences_.erase(options_.rank);
      return;
    }
    last = worker_named(r) + ": " + place.gone;
  }
  if (++absences_[options_.rank] > 1) throw network_error("nothing more can arrive from any worker: " + last, true);
}

bool peer_channels::progress(milliseconds wait) {
  options_.check();
  if (links_ && !links_->is_idle()) return receive_for(wait);
  if (!port_->receive(in_, wait)) return false;
  on_port();
  return true;
}

void peer_channels::on_port() {
  if (in_.channel < 0) on_message();
  else on_reply();
}

/// As progress, with direct connections.
bool peer_channels::receive_for(milliseconds wait) {
  const auto at_port = [this] {
    if (!port_->receive(in_, milliseconds{0})) return false;
    on_port();
    return true;
  };
  const bool any = read_links();
  if (any && ++reads_ % looks_between_ports != 0) return true;
  if (at_port() || any) return true;
  if (wait.count() <= 0) return false;
  const auto begin = steady_clock::now();
  for (unsigned looks = 1;; ++looks) {
    if (read_links() || (looks % looks_between_ports == 0 && at_port())) return true;
    const auto passed = steady_clock::now() - begin;
    if (passed >= std::min<std::chrono::nanoseconds>(longest_look, wait)) break;
    std::this_thread::yield();
  }
  acknowledge_all();
  if (!port_->receive_beside(in_, wait, links_->descriptors())) return read_links();
  on_port();
  return true;
}

/// Returns: whether anything had arrived over direct connections, or one has ended.
bool peer_channels::read_links() {
  if (!links_) return false;
  bool any = links_->progress([this](std::uint32_t rank, direct_links::peer_link& over, const net::link_record& r,
                                     byte_vector body) { on_record(rank, over, r, std::move(body)); });
  while (const auto broken = links_->take_broken()) {
    any = true;
    const auto p = to_.find(*broken);
    if (p == to_.end() || !std::exchange(p->second.on_link, false)) continue;
    if (p->second.channel.keeps()) p->second.channel.renew();
  }
  return any;
}

/// The last message that has been received of the process at the other end.
std::uint64_t peer_channels::taken_over(std::uint32_t rank, const direct_links::peer_link& over) {
  const auto& from = from_[rank];
  return from.client == over.client ? from.taken : 0;
}

/// Says what this worker has received.
void peer_channels::acknowledge(direct_links::peer_link& over, std::uint64_t received) {
  over.link->unsaid_bytes = 0;
  if (std::exchange(over.link->acknowledged, received) != received) over.link->send({.received = received}, {});
}

void peer_channels::acknowledge_all() {
  if (!links_) return;
  links_->for_each([this](std::uint32_t rank, direct_links::peer_link& l) {
    if (l.link->has_begun()) acknowledge(l, taken_over(rank, l));
  });
}

void peer_channels::on_record(std::uint32_t rank, direct_links::peer_link& over, const net::link_record& r,
                              byte_vector body) {
  auto& from = from_[rank];
  if (from.client != over.client) {
    if (over.turn < from.turn || r.number > 1) return over.link->close();
    from = {.client = over.client, .turn = over.turn, .taken = 0};
    met_.try_emplace(rank, over.turn);
    forget_before(rank, over.turn);
  }
  absences_.erase(rank);
  absences_.erase(options_.rank);
  if (const auto p = to_.find(rank); p != to_.end() && p->second.on_link)
    p->second.channel.acknowledge_before(r.received + 1);
  if (r.number == 0) return;
  if (r.number != from.taken + 1) return over.link->close();  // it has been sent again through ZeroMQ, or will be
  ++from.taken;
  if (options_.used != nullptr) options_.used->add({0, 0, net::request_header_bytes + body.size()});
  over.link->unsaid_bytes += body.size() + bytes_of_a_message;
  if (over.link->unsaid_bytes >= most_unsaid_bytes) acknowledge(over, from.taken);
  arrived_.arrive({{static_cast<int>(rank), r.tag, r.communicator}, std::move(body)});
}

/// Any process may connect: what is not from a worker of this job is refused.
void peer_channels::on_message() {
  net::request_view m;
  net::reply_header answer;
  const char* bad = net::decode(in_.frame, in_.tail.size(), m);
  const auto& h = m.header;
  answer.what = h.what;
  answer.sequence = h.sequence;
  const auto reply = [&](net::status result, std::uint64_t next) {
    answer.result = result;
    answer.value_version = next;
    net::reply_bytes head;
    net::encode(answer, head);
    port_->reply(in_.from, {.head = head});
  };
  const bool asks = h.what == net::verb::ping;
  if (bad != nullptr || (h.what != net::verb::message && !asks) || h.rank >= options_.size || h.rank == options_.rank)
    return reply(net::status::bad_request, 0);
  if (h.job != options_.job) return reply(net::status::wrong_job, 0);
  auto& from = from_[h.rank];
  // What was sent before this may have arrived over the direct connection.
  while (h.sequence > from.taken + (asks ? 0 : 1) && read_links()) {
  }
  if (h.epoch < from.turn) return;  // of a process that was replaced
  if (from.client != h.client) {    // its first message, or one of another process with this rank
    if (h.low_watermark != 1) return reply(net::status::conflict, 0);  // its earlier ones went to a process before this
    from = {.client = h.client, .turn = h.epoch, .taken = 0};
    met_.try_emplace(h.rank, h.epoch);
    forget_before(h.rank, h.epoch);
  }
  // This is a sign of life.
  absences_.erase(h.rank);
  absences_.erase(options_.rank);
  if (h.sequence > from.taken + (asks ? 0 : 1)) return reply(net::status::connection_reset, from.taken + 1);
  if (h.sequence > from.taken) {
    ++from.taken;
    const auto bytes = in_.tail ? in_.tail.bytes() : m.body;
    if (options_.used != nullptr) options_.used->add({0, 0, net::request_header_bytes + bytes.size()});
    if (h.function == direct_links::communicator) {
      if (links_) links_->take_offer(h.rank, h.client, h.epoch, bytes, options_.turn);
    } else {
      arrived_.arrive(
          {{static_cast<int>(h.rank), static_cast<int>(h.table), h.function}, byte_vector(bytes.begin(), bytes.end())});
    }
  }
  reply(net::status::ok, from.taken + 1);
}

void peer_channels::on_reply() {
  const auto peer = std::ranges::find_if(to_, [&](const auto& p) { return p.second.channel.owns(in_.channel); });
  if (peer == to_.end()) return;  // of a connection that was renewed
  auto& channel = peer->second.channel;
  net::reply_view r;
  if (const char* bad = net::decode(in_.frame, in_.tail.size(), r); bad != nullptr)
    throw protocol_error(worker_named(peer->first) + " sent a malformed reply: " + bad);
  if (r.header.result != net::status::ok && r.header.result != net::status::connection_reset)
    throw protocol_error(worker_named(peer->first) + " refused a message: " + net::name_of(r.header.result));
  channel.take(r.header, in_.channel);
  channel.acknowledge_before(r.header.value_version);
  if (!channel.is_broken()) return;
  if (std::exchange(peer->second.on_link, false)) links_->close(peer->first);
  channel.renew();
}

}  // namespace paracel
