// SPDX-License-Identifier: BSD-3-Clause
#include "worker/peer_channels.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include <paracel/error.hpp>

#include "net/collective_codec.hpp"

namespace paracel {

namespace {

// Enough to end a silence for which lost messages are the reason, little if the peer is only busy.
constexpr std::size_t resent_on_doubt = std::size_t{64} << 10U;

std::uint64_t random_client() {
  std::random_device seed;
  return (std::uint64_t{seed()} << 32U | seed()) | 1U;
}

std::string worker_named(std::uint32_t rank) { return "worker " + std::to_string(rank); }

}  // namespace

peer_channels::peer_channels(options o, std::unique_ptr<net::port> bound)
    : options_(std::move(o)), port_(std::move(bound)), client_(random_client()) {}

/// The channel to a peer; the first message opens it.
peer_channels::outgoing_peer& peer_channels::reach(std::uint32_t rank) {
  const auto found = to_.find(rank);
  if (found != to_.end()) return found->second;
  const auto place = options_.find(rank);
  if (!place.gone.empty()) throw network_error("cannot send to " + worker_named(rank) + ": " + place.gone, false);
  auto& p = to_[rank];
  p.channel = port_->connect(place.address);
  p.turn = place.turn;
  ranks_[p.channel] = rank;
  return p;
}

void peer_channels::transmit(const outgoing_peer& p, const unacknowledged& m) {
  net::request_header h;
  h.what = net::verb::message;
  h.job = options_.job;
  h.client = client_;
  h.sequence = m.sequence;
  h.low_watermark = p.kept.empty() ? m.sequence : p.kept.front().sequence;
  h.rank = options_.rank;
  h.function = m.to.communicator;
  h.table = static_cast<std::uint32_t>(m.to.tag);
  const bool apart = net::travels_as_tail(m.bytes.size());
  h.body_bytes = apart ? 0 : static_cast<std::uint32_t>(m.bytes.size());
  h.tail_bytes = apart ? m.bytes.size() : 0;
  net::request_bytes head;
  net::encode(h, head);
  if (apart) port_->send(p.channel, {.head = head, .tail = m.bytes});
  else port_->send(p.channel, {.head = head, .body = m.bytes.bytes()});
}

/// The oldest messages without an acknowledgement: at least one, and about so many bytes.
void peer_channels::resend(const outgoing_peer& p, std::size_t bytes) {
  std::size_t sent = 0;
  for (const auto& m : p.kept) {
    if (sent > bytes) return;
    transmit(p, m);
    sent += m.bytes.size();
  }
}

void peer_channels::send(const message_address& to, shared_buffer bytes, bool waits,
                         std::optional<milliseconds> limit) {
  const auto rank = static_cast<std::uint32_t>(to.rank);
  if (rank == options_.rank) {
    const auto b = bytes.bytes();
    arrived_.arrive({{to.rank, to.tag, to.communicator}, byte_vector(b.begin(), b.end())});
    return;
  }
  auto& p = reach(rank);
  p.kept.push_back({++p.last, to, std::move(bytes)});
  p.bytes += p.kept.back().bytes.size();
  transmit(p, p.kept.back());
  while (progress(milliseconds{0})) {
  }
  if (!waits || p.bytes <= options_.window_bytes) return;
  const auto begin = steady_clock::now();
  auto doubtful = begin + options_.doubt;
  while (p.bytes > options_.window_bytes) {
    if (progress(options_.patience)) continue;
    const auto now = steady_clock::now();
    if (limit && now - begin > *limit)
      throw network_error(
          worker_named(rank) + " has not received what was sent to it, for " + std::to_string(limit->count()) + " ms",
          true);
    if (now < doubtful) continue;
    doubtful = now + options_.doubt;
    question(rank, "cannot send to ");
  }
}

std::optional<received_message> peer_channels::take(message_matcher::ticket t, std::optional<milliseconds> limit) {
  const auto begin = steady_clock::now();
  auto doubtful = begin + options_.doubt;
  for (;;) {
    while (progress(milliseconds{0})) {
    }
    if (auto message = arrived_.take(t)) return message;
    const auto now = steady_clock::now();
    auto wait = options_.patience;
    if (limit) {
      const auto left = std::chrono::ceil<milliseconds>(begin + *limit - now);
      if (left.count() <= 0) return std::nullopt;
      wait = std::min(wait, left);
    }
    if (progress(wait)) {
      absences_.clear();
      continue;
    }
    if (steady_clock::now() < doubtful) continue;
    doubtful = steady_clock::now() + options_.doubt;
    const auto from = arrived_.asked(t).rank;
    if (from == any_source) question_all();
    else question(static_cast<std::uint32_t>(from), "nothing more comes from ");
  }
}

bool peer_channels::flush(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  auto doubtful = steady_clock::now() + options_.doubt;
  for (;;) {
    while (progress(milliseconds{0})) {
    }
    if (std::ranges::all_of(to_, [](const auto& p) { return p.second.kept.empty(); })) return true;
    const auto now = steady_clock::now();
    const auto left = std::chrono::ceil<milliseconds>(end - now);
    if (left.count() <= 0) return false;
    if (now >= doubtful) {
      doubtful = now + options_.doubt;
      for (const auto& [rank, p] : to_) resend(p, resent_on_doubt);
    }
    (void)progress(std::min(left, options_.patience));
  }
}

/// Whether a silent peer is still there. Found gone twice in a row, with nothing received in between, it is: what it
/// sent before it left may still have been on its way.
void peer_channels::question(std::uint32_t rank, const char* what) {
  if (rank != options_.rank) {
    const auto place = options_.find(rank);
    const auto p = to_.find(rank);
    const bool replaced = p != to_.end() && place.turn != p->second.turn;
    if (replaced && place.gone.empty())
      throw network_error(what + worker_named(rank) + ": another process has taken its place", true);
    if (place.gone.empty()) absences_.erase(rank);
    else if (++absences_[rank] > 1) throw network_error(what + worker_named(rank) + ": " + place.gone, true);
    if (p != to_.end()) resend(p->second, resent_on_doubt);
  }
}

/// A receive from any source fails when nobody is left who could send.
void peer_channels::question_all() {
  std::string last;
  for (std::uint32_t r = 0; r < options_.size; ++r) {
    if (r == options_.rank) continue;
    const auto place = options_.find(r);
    if (place.gone.empty()) {
      absences_.erase(options_.rank);
      return;
    }
    last = worker_named(r) + ": " + place.gone;
  }
  if (++absences_[options_.rank] > 1) throw network_error("nothing more comes from any worker: " + last, true);
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
  if (bad != nullptr || h.what != net::verb::message || h.rank >= options_.size || h.rank == options_.rank)
    return reply(net::status::bad_request, 0);
  if (h.job != options_.job) return reply(net::status::wrong_job, 0);
  auto& from = from_[h.rank];
  if (from.client != h.client) {  // its first message, or one of another process with this rank
    if (h.low_watermark != 1) return reply(net::status::conflict, 0);  // its earlier ones went to a process before this
    from = {.client = h.client, .taken = 0};
  }
  if (h.sequence > from.taken + 1) return reply(net::status::connection_reset, from.taken + 1);
  if (h.sequence == from.taken + 1) {
    ++from.taken;
    const auto bytes = in_.tail ? in_.tail.bytes() : m.body;
    arrived_.arrive(
        {{static_cast<int>(h.rank), static_cast<int>(h.table), h.function}, byte_vector(bytes.begin(), bytes.end())});
  }
  reply(net::status::ok, from.taken + 1);
}

void peer_channels::on_reply() {
  const auto rank = ranks_.find(in_.channel);
  if (rank == ranks_.end()) return;
  auto& p = to_.at(rank->second);
  net::reply_view r;
  if (const char* bad = net::decode(in_.frame, in_.tail.size(), r); bad != nullptr)
    throw protocol_error(worker_named(rank->second) + " sent a malformed reply: " + bad);
  const auto next = r.header.value_version;
  if (r.header.result != net::status::ok && r.header.result != net::status::connection_reset)
    throw protocol_error(worker_named(rank->second) + " refused a message: " + net::name_of(r.header.result));
  while (!p.kept.empty() && p.kept.front().sequence < next) {
    p.bytes -= p.kept.front().bytes.size();
    p.kept.pop_front();
  }
  // Of those after a gap each is refused; one refusal is enough.
  if (r.header.result == net::status::connection_reset && std::exchange(p.gap, next) != next)
    resend(p, options_.window_bytes);
}

}  // namespace paracel
