// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/replication_chain.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/trace.hpp"
#include "server/request/verb_rules.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

replication_chain::replication_chain(const replication_chain_options& options, server_budgets& budgets,
                                     replicated_store& of, net::port& port, serve_function serve)
    : context_(options, budgets, of),
      port_(port),
      at_once_(port),
      serve_(std::move(serve)),
      links_(context_, port),
      head_(context_, links_),
      replica_(context_, at_once_),
      held_(&budgets.replies),
      admission_(context_, links_),
      streams_(&budgets.streams) {}

// ---- epochs ---------------------------------------------------------------------------------------------------------

void replication_chain::follow(std::shared_ptr<const replica_view> view) {
  auto& c = context_;
  if (c.view != nullptr && view->members.epoch <= c.epoch) return;
  const auto before = std::exchange(c.view, std::move(view));
  c.epoch = c.view->members.epoch;
  // Clients without a reply retry, by the new membership; what was applied is remembered.
  const auto json = c.view->members.to_json();
  traced_.clear();
  held_.refuse(status::stale_epoch, c.epoch, net::bytes_of(json),
               [&](const net::peer& to, const net::outgoing& m) { port_.reply(to, m); });
  c.store.refuse_waiting(at_once_, status::stale_epoch, json);
  links_.drop_dead();
  c.store.keep_replicas();
  c.store.begin_epoch(c.epoch);
  replica_.begin_epoch();
  head_.begin_epoch();
  admission_.begin_epoch(before.get());
  check_synced();
  retry_parked();
}

void replication_chain::run_unreplicated(std::uint32_t epoch) {
  context_.epoch = epoch;
  retry_parked();
}

void replication_chain::check_synced() {
  if (synced_ == context_.epoch || !admission_.serves() || !head_.is_whole()) return;
  synced_ = context_.epoch;
  head_.end_sync();
  retry_parked();
}

// ---- requests -------------------------------------------------------------------------------------------------------

void replication_chain::send(const net::peer& to, const net::outgoing& message) { held_.hold(to, message); }

/// Refuses a request for which there is no room. One of a stream will be resent, with all that follow, in order.
void replication_chain::refuse_for_lack_of_room(const net::request_header& h, completion& done, std::string_view why) {
  const bool comes_again = (h.flags & net::flag_stream) != 0;
  if (comes_again) streams_.end(h);
  refuse(done, comes_again ? status::connection_reset : status::internal, comes_again ? std::string_view() : why);
}

/// Answers immediately, whatever waits.
void replication_chain::confirm(completion& done) {
  done.leave_through(at_once_);
  done.ok();
}

/// Likewise.
void replication_chain::refuse(completion& done, status why, std::string_view text) {
  done.leave_through(at_once_);
  done.fail(why, text);
}

/// Parked requests are retried, in order of arrival.
void replication_chain::retry_parked() {
  for (auto& p : admission_.take_parked()) {
    p.held = {};  // it may be parked again
    admit({p.header, p.body}, std::move(p.tail), std::move(p.done));
  }
  flush();  // before the replies are sealed, and before a whole partition is written that would already contain it
}

void replication_chain::handle(const net::request_view& request, shared_buffer tail, completion done) {
  const auto& h = request.header;
  if (!accepts(h, done.peer())) return refuse(done, status::connection_reset, {});
  const auto at = context_.options.at;
  // Whether this thread is alive does not depend on its replicas.
  if (h.what == verb::ping && (h.count == net::ping_alive || at == place::clock)) return confirm(done);
  // An unresponsive replica must not make its head hold back replies to all other clients.
  if (auto& replies = context_.budgets.replies; replies.is_over()) {
    const auto* rule = rule_of(at, h.what);
    const bool of_chains = h.what == verb::replicate || h.what == verb::handover;
    if (!of_chains && (rule == nullptr || rule->when == epoch_rule::current)) {
      replies.refuse();
      return refuse_for_lack_of_room(h, done, "too many replies wait here for the replicas");
    }
  }
  admit(request, std::move(tail), std::move(done));
}

/// Refuses what is parked of the stream that this request restarts.
void replication_chain::forget_waiting(const net::request_header& first) {
  context_.store.refuse_client(at_once_, first.client, status::connection_reset);
  replica_.forget_pieces(first);
  admission_.drop_parked_of(first, [&](completion& done) { refuse(done, status::connection_reset, {}); });
}

void replication_chain::admit(const net::request_view& request, shared_buffer tail, completion done) {
  const auto& h = request.header;
  done.set_epoch(context_.epoch);
  switch (admission_.judge(h, synced_ == context_.epoch)) {
    case epoch_admission::verdict::serve:
      return serve(request, std::move(tail), std::move(done));
    case epoch_admission::verdict::park:
      if (admission_.park(request, tail, done)) return;
      return refuse_for_lack_of_room(h, done, "too much waits here for a membership");
    case epoch_admission::verdict::refuse_stale:
      return refuse(done, status::stale_epoch, context_.view->members.to_json());
    case epoch_admission::verdict::refuse_no_peer:
      return refuse(done, status::bad_request, no_peer);
    case epoch_admission::verdict::replicate:
      return replicate_traced(request, std::move(done));
    case epoch_admission::verdict::confirm:
      return confirm(done);
  }
}

void replication_chain::serve(const net::request_view& request, shared_buffer tail, completion done) {
  const bool may_restore = request.header.what == verb::checkpoint && context_.options.at == place::shard;
  serve_(request, std::move(tail), std::move(done));
  if (may_restore && active() && head_.find_restored()) synced_ = 0;
}

void replication_chain::close() {
  constexpr std::string_view why = "the server is stopping";
  for (auto& p : admission_.take_parked()) refuse(p.done, status::job_ended, why);
  held_.release(~std::uint64_t{0}, [&](const net::peer&, const net::outgoing&) {});
}

// ---- the end of a batch, and replies --------------------------------------------------------------------------------

void replication_chain::end_batch(const net::clock_source& time, time_point lease_end) {
  context_.now = time.now();
  flush();
  if (head_.sweep()) check_synced();
  check_links();
  held_.seal(head_.last_sent());
  if (context_.traced) [[unlikely]]
    trace_hold();
  if (!held_.empty() && time.now() < lease_end) {
    held_.release(head_.next_open(), [&](const net::peer& to, const net::outgoing& m) { port_.reply(to, m); });
    if (!traced_.empty()) [[unlikely]]
      trace_release();
  }
}

// ---- traces ---------------------------------------------------------------------------------------------------------

/// The replies to this batch wait from now on.
void replication_chain::trace_hold() {
  context_.traced = false;
  if (active() && trace::mine != nullptr) traced_.push_back({head_.last_sent(), trace::now()});
}

void replication_chain::trace_release() {
  for (const auto open = head_.next_open(); !traced_.empty() && traced_.front().need < open; traced_.pop_front())
    trace::add({.begin = traced_.front().since,
                .end = trace::now(),
                .client = context_.options.incarnation,
                .sequence = traced_.front().need,
                .more = context_.trace_thread(context_.options.index),
                .kind = trace::kind::hold});
}

/// A message of a head.
void replication_chain::replicate_traced(const net::request_view& request, completion done) {
  const auto& h = request.header;
  if ((h.flags & net::flag_traced) == 0 || trace::mine == nullptr) [[likely]]
    return replica_.replicate(request, std::move(done));
  trace::record r{.client = h.client,
                  .sequence = h.sequence,
                  .bytes = h.body_bytes,
                  .more = context_.trace_thread(h.rank),
                  .kind = trace::kind::apply,
                  .what = static_cast<std::uint8_t>(h.what)};
  r.begin = trace::now();
  replica_.replicate(request, std::move(done));
  r.end = trace::now();
  trace::add(r);
}

void replication_chain::flush() {
  if (active()) head_.flush();
}

void replication_chain::take_reply(const net::incoming& in) {
  net::reply_view reply;
  if (net::decode(in.frame, in.tail.size(), reply) != nullptr) return;
  const auto number = reply.header.sequence;
  const auto result = reply.header.result;
  chain_hop from{};
  const auto arrived = links_.receive(reply.header, in.channel, from);
  if (arrived == replication_links::arrival::broken) renew(from);
  if (arrived != replication_links::arrival::reply) return;
  // A server of another epoch, or one that exits, will be known from the next membership. Any other refusal would never
  // be resolved.
  const bool is_ahead = result == status::stale_epoch || result == status::job_ended;
  if ((result == status::ok || is_ahead) && admission_.awaits(number)) {
    // Refused: the other server is ahead of us, or exiting, so it does not serve by an older membership either.
    admission_.answered(number);
    if (!admission_.serves()) return;
    check_synced();
    return retry_parked();
  }
  if (is_ahead || !(head_.awaits(number) || admission_.awaits(number))) return;
  if (result != status::ok) throw error("a replica rejected a message: " + std::string(net::text_of(reply.body)));
  std::vector<std::uint16_t> lacking;
  lacking.reserve(reply.body.size() / sizeof(std::uint16_t));
  for (std::uint16_t p = 0; take_fields(reply.body, p);) lacking.push_back(p);
  std::sort(lacking.begin(), lacking.end());
  head_.answered(number, lacking);
  check_synced();
}

// ---- a connection breaks --------------------------------------------------------------------------------------------

void replication_chain::check_links() {
  if (!links_.is_check_due()) return;
  replication_links::oldest_waits waits;
  head_.add_waits(waits);
  admission_.add_waits(waits);
  for (const auto& to : links_.find_broken(waits)) renew(to);
}

/// A new connection replaces one that may have lost messages. Asks about everything that is unanswered there.
void replication_chain::renew(const chain_hop to) {
  links_.renew(to);
  admission_.renew(to);
  head_.renew(to);
}

}  // namespace paracel::srv
