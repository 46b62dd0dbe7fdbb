// SPDX-License-Identifier: BSD-3-Clause
#include "client/server_group.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <paracel/error.hpp>

#include "core/identity.hpp"
#include "core/interruption.hpp"

namespace paracel {

namespace {

// How often a blocked call checks whether the job has ended.
constexpr std::chrono::milliseconds look_up_interval{100};

client_context context_for(net::transport& transport, const membership& servers, std::uint32_t rank,
                           const kvclt_options& options) {
  client_context c;
  c.options = options;
  c.port = transport.open();
  c.port->accept_lent_tails();
  c.job = servers.job;
  c.incarnation = options.incarnation != 0 ? options.incarnation : random_id();
  c.rank = rank;
  c.epoch = servers.epoch;
  c.may_change = servers.may_change();
  c.retains = c.may_change || options.resends;
  return c;
}

}  // namespace

server_group::server_group(net::transport& transport, membership servers, std::uint32_t rank, kvclt_options options,
                           std::shared_ptr<abort_signal> ended, std::shared_ptr<latest_membership> board)
    : shared_(context_for(transport, servers, rank, options)),
      routes_(shared_, std::move(servers)),
      replay_(shared_, routes_),
      many_(*this, shared_, routes_),
      ended_(std::move(ended)),
      board_(board != nullptr ? std::move(board) : std::make_shared<latest_membership>()),
      silence_(options.resend_after) {}

server_group::~server_group() = default;

// ---- requests -----------------------------------------------------------------------------------------------------

server_group::sequence server_group::send(std::uint32_t channel, net::request_header& h, std::string_view key,
                                          std::span<const std::byte> prefix, std::span<const std::byte> payload,
                                          shared_buffer&& tail, handler&& done) {
  if (ended_) ended_->check();
  kvclt::check_key(key);
  const auto total = net::request_header_bytes + key.size() + prefix.size() + payload.size() + tail.size();
  if (total > shared_.options.max_message_bytes)
    throw network_error("a request of " + std::to_string(total) + " bytes is over the limit of " +
                            std::to_string(shared_.options.max_message_bytes),
                        false);
  wait_for_window(total);
  if (shared_.before) {
    const auto kind = net::kind_of(h.what);
    const bool many = kind == net::verb_kind::all_keys || (kind == net::verb_kind::key_set && net::has_items(h.what));
    const net::request_items listed(payload, h.count);
    if (kind == net::verb_kind::key) shared_.before(h.what, &key, nullptr);
    else if (kind == net::verb_kind::keys) shared_.before(h.what, nullptr, &listed);
    else if (many) shared_.before(h.what, nullptr, nullptr);
    shared_.window.reserve();  // the hook may have used up the room
  }
  const auto& to = routes_.at(channel);
  return to.client->send(to.thread, channel, h, key, prefix, payload, std::move(tail), std::move(done));
}

void server_group::wait_for_window(std::size_t bytes) {
  // A handler that runs while we wait may send too, so check the window only afterwards.
  const auto& window = shared_.window;
  const auto most = shared_.options.max_outstanding_bytes;
  if (!shared_.in_handler && window.in_flight() > 0 && window.bytes() + bytes > most)
    run_until([&] { return window.in_flight() == 0 || window.bytes() + bytes <= most || waits_in_vain(); },
              window.low());
  if (shared_.retains && !shared_.in_handler && window.is_full())
    run_until([&] { return !window.is_full() || waits_in_vain(); }, window.low());
  shared_.window.reserve();
}

server_group::sequence server_group::request(const call& c, std::string_view key, const value_view& value, handler done,
                                             shared_buffer large) {
  refresh_membership();
  const pin_routing here(*this);
  auto h = kvclt::header_of(c);
  const auto at = routes_.locate(key);
  h.partition = at.partition;
  h.tag = value.tag;
  auto payload = value.bytes;
  if (large) {
    payload = {};
  } else if (payload.size() > net::tail_threshold_bytes) {
    large = shared_buffer::copy_of(payload);
    payload = {};
  }
  return send(routes_.channel_of(at), h, key, c.prefix, payload, std::move(large), std::move(done));
}

server_group::sequence server_group::shard_request(const call& c, std::uint32_t channel, std::uint32_t count,
                                                   value_tag tag, std::span<const std::byte> payload, handler done,
                                                   shared_buffer large, std::string_view key) {
  auto h = kvclt::header_of(c);
  h.count = count;
  h.tag = tag;
  return send(channel, h, key, {}, payload, std::move(large), std::move(done));
}

void server_group::retain_rows(sequence s, std::shared_ptr<const listed_rows> rows, std::uint32_t part,
                               sequence place) {
  const auto& retained = shared_.window.at(s).retained;
  if (!shared_.window.is_open(s) || retained == nullptr) return;
  if (rows != nullptr) {  // the shard may hold requests back until it has the list again
    const auto& to = routes_.at(retained->channel);
    to.client->record_set(to.thread, rows->parts[part].digest);
  }
  retained->place = place;
  retained->rows = std::move(rows);
  retained->set_part = part;
}

server_group::sequence server_group::shard_request(const call& c, std::uint32_t server, std::uint32_t shard,
                                                   std::string_view key, std::span<const std::byte> payload,
                                                   handler done) {
  const pin_routing here(*this);
  auto h = kvclt::header_of(c);
  return send(routes_.channel_of(server, shard), h, key, {}, payload, {}, std::move(done));
}

void server_group::broadcast(const call& c, std::string_view key, std::span<const std::byte> payload,
                             const handler& each) {
  refresh_membership();
  if (shared_.may_change) replay_.record_registration(c, key, payload);
  if (shared_.retains && c.what == net::verb::clear) return clear_everywhere(c, each);
  std::size_t unanswered = 0;
  const auto first = next();
  try {
    {
      const pin_routing here(*this);
      routes_.for_each_shard([&](std::uint32_t channel) {
        auto h = kvclt::header_of(c);
        ++unanswered;
        send(channel, h, key, {}, payload, {}, [&](const kv_result& r) {
          --unanswered;
          each(r);
        });
      });
    }
    run_until([&] { return unanswered == 0; }, first);
  } catch (...) {
    shared_.window.forget(first, next() - 1);  // the handlers refer to this stack
    throw;
  }
}

server_group::sequence server_group::subscribe(std::uint32_t server, std::uint32_t shard, std::uint32_t clock,
                                               std::span<const std::byte> items, std::uint32_t count, handler done) {
  const pin_routing here(*this);
  net::request_header h;
  h.what = net::verb::subscribe;
  h.clock = clock;
  h.count = count;
  return send(routes_.channel_of(server, shard), h, {}, {}, items, {}, std::move(done));
}

server_group::sequence server_group::clock_request(net::verb what, std::uint32_t clock, handler done,
                                                   std::uint16_t flags) {
  refresh_membership();
  const pin_routing here(*this);
  net::request_header h;
  h.what = what;
  h.flags = flags;
  h.clock = clock;
  subscribes_ = subscribes_ || what == net::verb::subscribe;
  return send(routes_.clock_channel(), h, {}, {}, {}, {}, std::move(done));
}

// ---- replies ------------------------------------------------------------------------------------------------------

template <class Reached>
void server_group::run_until(const Reached& reached, sequence s) {
  const auto& window = shared_.window;
  auto last_sign = std::chrono::steady_clock::time_point{};  // read the time only once something is late
  const net::batch_of_messages gathered(*shared_.port);
  while (!reached()) {
    refresh_membership();
    const auto interval =
        std::min(shared_.may_change ? refresh_interval : look_up_interval, shared_.options.resend_after);
    if (receive(interval)) {
      last_sign = {};
      continue;
    }
    if (ended_) ended_->check();
    check_interruption();
    if (waiting_) waiting_();
    record_silence(interval);
    if (shared_.options.timeout.count() == 0) continue;
    const auto late = window.answered(s) ? window.low() : s;  // replies other than that to `s` may be missing
    if (window.answered(late) || window.at(late).what == net::verb::clock_wait) continue;
    const auto now = std::chrono::steady_clock::now();
    if (last_sign == std::chrono::steady_clock::time_point{}) last_sign = now - look_up_interval;
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_sign);
    if (silence < shared_.options.timeout) continue;
    if (!receive(std::chrono::milliseconds{0})) give_up(late, silence);
    last_sign = {};  // it has arrived meanwhile, or while this process was suspended
  }
}

bool server_group::receive(std::chrono::milliseconds timeout) {
  if (!shared_.port->receive(incoming_, timeout)) return false;
  shared_.counted.received_bytes += incoming_.frame.size() + incoming_.tail.size();
  net::reply_view reply;
  if (const char* reason = net::decode(incoming_.frame, incoming_.tail.size(), reply); reason != nullptr)
    throw protocol_error(std::string("a server sent a malformed reply: ") + reason);
  // A server that exits. Whether the job has ended, and with which status, is decided by the scheduler or its silence.
  if (reply.header.result == net::status::job_ended && (ended_ != nullptr || shared_.may_change)) return true;
  // Another process has the address of a server that is gone. The scheduler will report the loss.
  if (reply.header.result == net::status::wrong_job && shared_.may_change) return true;
  // Of numbers any bytes are some; everything else is checked, and then must not change any more.
  if (incoming_.tail_is_lent && !(reply.header.what == net::verb::pull && is_numeric(reply.header.tag)))
    incoming_.tail = shared_buffer::copy_of(incoming_.tail.bytes());
  const auto s = reply.header.sequence;
  if (reply.header.result == net::status::connection_reset || (reply.header.what == net::verb::ping && s == 0)) {
    take_sign(reply.header, incoming_.channel);
    return true;
  }
  silence_.reset();
  auto& window = shared_.window;
  if (const auto parked = window.take_parked(s)) {
    shared_.run(parked->done, {reply.header, reply.body, std::move(incoming_.tail)});
    return true;
  }
  if (!window.is_open(s)) return true;  // answered before, or never sent
  auto& e = window.at(s);
  if (e.multi != nullptr) return true;
  if (e.retained != nullptr) [[likely]] {
    if (reply.header.result == net::status::stale_epoch) {
      try {
        board_->put(membership::from_json(net::text_of(incoming_.tail ? incoming_.tail.bytes() : reply.body)));
      } catch (const protocol_error&) {  // the scheduler reports the end separately
      }
      return true;
    }
    if (!replay_.accepts(e, reply, incoming_)) return true;
  }
  const auto done = std::move(e.done);
  if (e.traced_since != 0) [[unlikely]]
    shared_.trace_answer(e, s, reply.header.result, incoming_.frame.size() + incoming_.tail.size());
  window.close(e);
  shared_.run(done, {reply.header, reply.body, std::move(incoming_.tail)});
  return true;
}

/// A reply that shows whether a connection has broken.
void server_group::take_sign(const net::reply_header& h, int connection) {
  const auto channel = routes_.channel_behind(connection);
  if (channel == routes_.channels()) return;  // given up since
  const auto& to = routes_.at(channel);
  // This is no sign of the other connections: the silence of this client goes on.
  to.client->take(to.thread, h, connection);
  if (!to.client->is_broken(to.thread)) return;
  if (!shared_.retains) give_up_connection(to);
  broken_ = true;
}

void server_group::give_up_connection(const routing_table::end& to) const {
  throw network_error("the connection to " + to.client->address(to.thread) + " of s" +
                          std::to_string(to.client->slot()) +
                          " broke, and the request in flight was lost: it is unknown whether the server executed it",
                      true);
}

void server_group::give_up(sequence s, std::chrono::milliseconds silence) const {
  const auto& e = shared_.window.at(s);
  const auto& to = routes_.at(e.channel);
  throw network_error(std::string("no answer to ") + net::name_of(e.what) + " from " + to.client->address(to.thread) +
                          " for " + std::to_string(silence.count()) +
                          " ms; it is unknown whether the server executed it",
                      true, exit_status::timeout);
}

void server_group::wait(sequence s) {
  try {
    run_until([&] { return answered(s); }, s);
  } catch (...) {
    shared_.window.forget(s, s);  // its handler may refer to the caller's stack
    throw;
  }
}

void server_group::wait_all() {
  run_until([&] { return in_flight() == 0; }, shared_.window.low());
}

std::size_t server_group::poll() {
  refresh_membership();
  std::size_t n = 0;
  while (in_flight() + shared_.window.parked() > 0 && receive(std::chrono::milliseconds{0})) ++n;
  if (ended_) ended_->check();
  if (n == 0 && in_flight() != 0) record_silence_while_polling();
  return n;
}

}  // namespace paracel
