// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/peer_channels.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

#include "net/collective_codec.hpp"
#include "worker/job/usage.hpp"

namespace paracel {

namespace {

// A message is late when it has been unacknowledged at this many checks in a row.
constexpr int late_checks = 4;

std::string worker_named(std::uint32_t rank) { return "worker " + std::to_string(rank); }

}  // namespace

peer_channels::peer_channels(options o, std::unique_ptr<net::port> bound)
    : options_(std::move(o)), port_(std::move(bound)) {}

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

void peer_channels::check_link(outgoing_peer& p) {
  const auto oldest = p.channel.keeps() ? p.channel.oldest_kept() : 0;
  if (std::exchange(p.oldest, oldest) != oldest) p.checks = 0;
  if (oldest == 0 || ++p.checks <= late_checks) return;
  // Between messages a worker may compute for any length of time, and answers nothing: not over a probe either.
  p.channel.check_health(steady_clock::now().time_since_epoch(), header_for(p), {});
  if (p.channel.is_broken()) p.channel.renew();
}

/// Another process is this worker now: the next message to it opens a channel.
void peer_channels::forget_before(std::uint32_t rank, std::uint32_t turn) {
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
  auto& p = reach(rank);
  ++p.last;
  auto h = header_for(p);
  h.function = to.communicator;
  h.table = static_cast<std::uint32_t>(to.tag);
  if (net::travels_as_tail(bytes.size())) p.channel.send_kept(h, {}, std::move(bytes));
  else p.channel.send_kept(h, std::move(bytes), {});
  while (progress(milliseconds{0})) {
  }
  if (!waits) return;
  const auto begin = steady_clock::now();
  growing_timer doubt(options_.patience, options_.doubt);
  while (p.channel.kept_bytes() > options_.window_bytes) {
    if (progress(options_.patience) && p.channel.kept_bytes() <= options_.window_bytes) return;
    check_links();
    if (limit && steady_clock::now() - begin > *limit)
      throw network_error(
          worker_named(rank) + " has not received what was sent to it, for " + std::to_string(limit->count()) + " ms",
          true);
    if (doubt.has_passed()) question(rank, "cannot send to ");
  }
}

std::optional<received_message> peer_channels::take(message_matcher::ticket t, std::optional<milliseconds> limit,
                                                    const side_work& meanwhile) {
  const auto begin = steady_clock::now();
  growing_timer doubt(options_.patience, options_.doubt);
  for (;;) {
    while (progress(milliseconds{0})) {
    }
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
  for (auto& [rank, p] : to_) check_link(p);
}

bool peer_channels::flush(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  for (;;) {
    while (progress(milliseconds{0})) {
    }
    if (std::ranges::all_of(to_, [](const auto& p) { return !p.second.channel.keeps(); })) return true;
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
  if (!port_->receive(in_, wait)) return false;
  if (in_.channel < 0) on_message();
  else on_reply();
  return true;
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
    arrived_.arrive(
        {{static_cast<int>(h.rank), static_cast<int>(h.table), h.function}, byte_vector(bytes.begin(), bytes.end())});
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
  if (channel.is_broken()) channel.renew();
}

}  // namespace paracel
