// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/scheduler.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "core/ring.hpp"
#include "server/request/verb_rules.hpp"
#include "server/scheduler/control_body.hpp"

namespace paracel::srv {
namespace {

using nlohmann::json;

constexpr std::size_t max_busy_items = 64;  // of one heartbeat
// The same long call is reported again after this time, so that a long log shows that it is still the same.
constexpr std::chrono::seconds busy_again{30};

/// As servers and workers give it; 0: none.
std::uint64_t incarnation_in(const json& body) {
  const auto it = body.find("incarnation");
  if (it != body.end() && it->is_string()) return from_hex(it->get_ref<const std::string&>()).value_or(0);
  return whole_number_in(body, "incarnation", ~std::uint64_t{0});
}

/// The server that a join describes.
server_entry server_in(const json& body, std::uint32_t slot, const process& holder) {
  server_entry s;
  s.slot = slot;
  s.host = holder.host;
  s.pid = holder.pid;
  s.incarnation = incarnation_in(body);
  if (s.incarnation == 0) throw refusal("\"incarnation\" must be 16 hex digits or a number, and not 0");
  if (const auto weight = body.find("weight"); weight != body.end()) {
    if (!weight->is_number() || !(*weight >= ring::least_weight && *weight <= ring::greatest_weight))
      throw refusal("\"weight\" is " + json_text(*weight) + ", not a number in [1/64, 64]");
    s.weight = weight->get<double>();
  }
  s.threads = static_cast<std::uint32_t>(whole_number_in(body, "threads", membership::most_threads));
  const auto shards = body.find("shards");
  if (shards == body.end() || !shards->is_array() || shards->size() != s.threads || s.threads == 0)
    throw refusal("\"shards\" must have one address for each of the threads");
  for (const auto& a : *shards) s.shards.push_back(address_in({{"shards", a}}, "shards"));
  s.clock = address_in(body, "clock");
  s.control = address_in(body, "control");
  return s;
}

}  // namespace

scheduler::sender scheduler::sender::in(const json& j, const scheduler_options& options) {
  sender s;
  const auto it = j.find("role");
  if (it == j.end() || (*it != "server" && *it != "worker")) throw refusal("\"role\" must be \"server\" or \"worker\"");
  s.what = *it == "server" ? role::server : role::worker;
  const bool server = s.what == role::server;
  s.index = static_cast<std::uint32_t>(whole_number_in(j, server ? "slot" : "rank", 0xffffffffU));
  const auto count = server ? options.servers : options.workers;
  if (s.index >= count)
    throw refusal((server ? "slot " : "rank ") + std::to_string(s.index) + ": the job has " + std::to_string(count) +
                  (server ? " servers" : " workers") + ", counted from 0");
  return s;
}

scheduler::scheduler(scheduler_options options, event_sink events, time_point now,
                     checkpoint_coordinator::send_request send)
    : options_(std::move(options)),
      events_(std::move(events)),
      begin_(now),
      joining_since_(now),
      servers_in_job_(options_.job, options_.workers, options_.servers, options_.replicas, options_.elastic),
      servers_(options_.servers),
      workers_(options_.workers),
      collectives_({.max_ranks = options_.workers}),
      checkpoints_(options_.checkpoints, options_.job, options_.workers, events_, send),
      removals_(send),
      rebalancer_(options_.rebalance_when),
      commands_(options_.workers, std::move(send)) {
  servers_in_job_.plan_checkpoints(checkpoints_.plan());
  if (options_.worker_wait.count() != 0)
    collectives_.keep_answers({.ranks = options_.workers, .folder = options_.answers_folder});
}

std::string scheduler::name(role r, std::uint32_t index) const {
  const auto& holder = at(r, index).holder;
  return (r == role::server ? "server s" : "worker ") + std::to_string(index) + " (pid " + std::to_string(holder.pid) +
         " on " + holder.host + ")";
}

std::string scheduler::ended_json() const { return json_text({{"status", status_}, {"cause", cause_}}); }

void scheduler::refuse_ended(completion& done) const { done.fail(net::status::job_ended, ended_json()); }

void scheduler::handle(const net::request_view& in, shared_buffer tail, completion done, time_point now) try {
  if (in.header.job != options_.job)
    return done.fail(net::status::wrong_job,
                     "this is the scheduler of job " + to_hex(options_.job) + ", the request is of another");
  if (const auto no = refused_at(place::scheduler, in.header, options_.job, options_.job))
    return done.fail(no->why, no->text);
  if (in.header.what == net::verb::ping) return done.ok();
  if (in.header.what == net::verb::stats) return done.answer({}, net::bytes_of(report(now)));
  if (phase_ == phase::aborted && in.header.what != net::verb::heartbeat && in.header.what != net::verb::leave)
    return refuse_ended(done);
  switch (in.header.what) {
    case net::verb::join:
      return join(in, done, now);
    case net::verb::heartbeat:
      return heartbeat(in, done, now);
    case net::verb::progress:
      return progress(in, done, now);
    case net::verb::leave:
      return leave(in, done, now);
    case net::verb::abort:
      return on_abort(in, done, now);
    case net::verb::watch:
      return watch(in, done);
    case net::verb::report_death:
      return on_death_report(in, done, now);
    case net::verb::resize:
      return resize(in, done, now);
    case net::verb::find_worker:
      return find_worker(in, done);
    case net::verb::reserve:
      return reserve(in, done, now);
    case net::verb::tell:
      return tell(in, done, now);
    case net::verb::take_commands:
      return take_commands(in, done, now);
    case net::verb::checkpoint:
      return checkpoints_.handle(in, std::move(done), servers_in_job_.members(), now);
    case net::verb::collective:
      return collective(in, std::move(tail), done);
    default:
      return;  // already rejected
  }
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

void scheduler::join(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  const bool is_server = who.what == role::server;
  const bool enters = is_server && phase_ == phase::running && is_entering(who.index);
  const bool replaces = phase_ == phase::running && (is_server ? servers_in_job_.state(who.index) == server_state::down
                                                               : workers_[who.index].is(seat_state::awaited));
  const bool returns = enters || replaces;
  auto& n = at(who.what, who.index);
  if (n.has_joined() && !returns) throw refusal(name(who.what, who.index) + " has joined already");
  if (phase_ != phase::joining && !returns) throw refusal("the job is complete");
  process holder{.pid = 0, .host = text_in(body, "host")};
  holder.pid = static_cast<int>(whole_number_in(body, "pid", 0x7fffffff));
  const auto dead = std::ranges::find_if(
      n.reaped, [&](const auto& r) { return r.first == holder.pid && (r.second.empty() || r.second == holder.host); });
  if (dead != n.reaped.end()) {
    n.reaped.erase(dead);  // its number may be used again
    throw refusal("the death of this process has been reported");
  }
  json joined{{"event", "joined"},
              {"host", holder.host},
              {"pid", holder.pid},
              {"role", is_server ? "server" : "worker"},
              {"index", who.index}};
  if (is_server) {
    auto s = server_in(body, who.index, holder);
    holder.incarnation = s.incarnation;
    joined["threads"] = s.threads;
    admit_server(who.index, std::move(s));
    if (returns) joined["epoch"] = servers_in_job_.members().epoch;
  } else {
    const auto size = whole_number_in(body, "size", 0xffffffffU);
    if (size != options_.workers)
      throw refusal("worker " + std::to_string(who.index) + " was started as one of " + std::to_string(size) +
                    " workers, the job has " + std::to_string(options_.workers));
    if (body.contains("incarnation")) holder.incarnation = incarnation_in(body);
    n.address = body.contains("address") ? address_in(body, "address") : "";
    if (!returns) ++workers_joined_;
  }
  if (n.has_joined()) n.earlier.push_back(n.holder);
  if (is_server && returns) {
    auto earlier = std::move(n.earlier);
    n = {};
    n.earlier = std::move(earlier);
  }
  n.holder = std::move(holder);
  n.client = in.header.client;
  ++counts_.joins[is_server ? 0 : 1];
  n.reserved_for = {};
  if (!is_server && returns) {
    n.usage.clear();
    n.shares = {};
    events_(json_text(joined), false);
    return take_place(who.index, body, done, now);
  }
  n.become(seat_state::joined);
  if (options_.external) n.last_sign = now;  // no launcher will report its death
  n.joining = std::move(done);
  events_(json_text(joined), false);
  if (!returns) return answer_joins(now);
  n.last_sign = now;
  n.joining.answer({}, net::bytes_of(servers_in_job_.encoded()));
  broadcast_membership();
  note_change(role::server, who.index);
}

/// A server that joins takes its slot in the membership.
void scheduler::admit_server(std::uint32_t slot, server_entry s) {
  if (phase_ == phase::joining) {
    servers_in_job_.enter(std::move(s));
    ++servers_joined_;
  } else if (is_entering(slot)) {
    servers_in_job_.admit(std::move(s));
    entering_.reset();
    checkpoints_.servers_changed("server s" + std::to_string(slot) + " joined meanwhile");
  } else {
    const auto& lost = servers_in_job_.members().servers[slot];
    if (s.weight != lost.weight || s.threads != lost.threads)  // other partitions would be its own
      throw refusal("a replacement of s" + std::to_string(slot) + " must have its weight " + json_text(lost.weight) +
                    " and its " + std::to_string(lost.threads) + " threads, not " + json_text(s.weight) + " and " +
                    std::to_string(s.threads));
    servers_in_job_.rejoin(std::move(s));
  }
}

void scheduler::find_worker(const net::request_view& in, completion& done) const {
  const auto body = object_in(in);
  const auto rank = static_cast<std::uint32_t>(whole_number_in(body, "rank", options_.workers - 1));
  const auto& n = workers_[rank];
  const bool awaited = n.is(seat_state::awaited);
  std::string gone;
  if (n.is(seat_state::ejected)) gone = "it was ejected";
  else if (awaited) gone = n.cause;
  else if (n.is_gone()) gone = "it has left the job";
  else if (!n.has_joined() || n.address.empty()) gone = "it has no address for messages";
  const auto answer = json_text(json{{"address", n.address}, {"turn", n.turn}, {"gone", gone}, {"awaited", awaited}});
  done.answer({}, net::bytes_of(answer));
}

/// From this reply on a node must send heartbeats; before it, it may be waiting for the others without sending any.
void scheduler::answer_joins(time_point now) {
  PARACEL_CHECK(servers_joined_ <= options_.servers && workers_joined_ <= options_.workers);
  if (servers_joined_ < options_.servers) return;
  const auto& all = servers_in_job_.encoded();
  const auto answer = [&](seat& n) {
    if (!n.joining) return;
    n.last_sign = now;
    n.joining.answer({}, net::bytes_of(all));
  };
  for (auto& n : servers_) answer(n);
  checkpoints_.restore(servers_in_job_.members(), now);
  if (workers_joined_ < options_.workers || !checkpoints_.restored()) return;
  phase_ = phase::running;
  next_sample_ = now + first_sample;
  for (auto& n : workers_) answer(n);
  events_(json_text({{"event", "started"}, {"workers", options_.workers}, {"servers", options_.servers}}), false);
}

void scheduler::heartbeat(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  const bool is_server = who.what == role::server;
  auto& n = at(who.what, who.index);
  const bool known = n.is_held_by(body);
  const bool lost = is_server ? servers_in_job_.state(who.index) == server_state::down : n.is(seat_state::awaited);
  // The heartbeats have their own connection and may overtake the join.
  const bool may_join = !n.has_joined() || lost || (is_server && is_entering(who.index));
  const bool is_replaced = !known && n.was_held_by(body);
  if (!known && !may_join && !is_replaced) throw refusal(name(who.what, who.index) + " holds this place");
  net::reply_header fields;
  if (phase_ == phase::aborted) {
    if (known) n.dismiss();
    fields.order = net::instruction::abort;
    const auto why = ended_json();
    return done.answer(fields, net::bytes_of(why));
  }
  const bool is_needed =
      phase_ != phase::done && !(known && is_server && servers_in_job_.state(who.index) == server_state::gone);
  if (!is_needed) {
    if (known) n.dismiss();
    fields.order = net::instruction::shutdown;
    return done.answer(fields);
  }
  if ((lost && known) || is_replaced || n.is(seat_state::ejected)) {
    // it was suspended or cut off: others have replaced it
    return tell_to_end(
        done, is_server ? exit_status::server_lost : exit_status::worker_lost,
        is_replaced ? "another process has replaced it" : name(who.what, who.index) + " was considered lost");
  }
  if (!known && body.value("joined", json()) == true)  // of a scheduler that was here before, with the same job id
    return tell_to_end(done, exit_status::scheduler_lost, "a new scheduler does not know it");
  if (!known) return done.answer(fields);
  if (!n.is(seat_state::blocked)) {
    n.last_sign = now;
    const auto clock = body.find("clock");
    if (clock != body.end() && clock->is_number_unsigned())
      n.clock = static_cast<std::uint32_t>(std::min<std::uint64_t>(clock->get<std::uint64_t>(), 0xffffffffU));
    if (!is_server) on_worker_heartbeat(who.index, body);
    const auto take_bytes = [&](const char* key, std::uint64_t& out) {
      const auto bytes = body.find(key);
      if (bytes != body.end() && bytes->is_number_unsigned()) out = bytes->get<std::uint64_t>();
    };
    take_bytes("memory_bytes", n.memory_bytes);
    take_bytes("resident_bytes", n.resident_bytes);
    n.usage = counters_in(body, "usage");
    if (is_server) n.metrics = counters_in(body, "metrics");
    if (is_server) n.load = server_load::from_json(body.value("load", json()));
    const auto busy = body.find("busy");
    if (is_server && busy != body.end()) name_busy(who.index, *busy, now);
    const auto synced = body.find("synced");
    if (is_server && synced != body.end() && synced->is_number_unsigned())
      on_synced(who.index, synced->get<std::uint64_t>());
  }
  if (n.is(seat_state::blocked)) return tell_to_end(done, exit_status::server_lost, n.cause);
  fields.count = net::known_sender;
  done.answer(fields);
}

/// The reply to the heartbeat of a process that the job continues without.
void scheduler::tell_to_end(completion& done, int with_status, const std::string& why) {
  net::reply_header fields;
  fields.order = net::instruction::abort;
  const auto body = json_text({{"status", with_status}, {"cause", why + "; the job continues without it"}});
  done.answer(fields, net::bytes_of(body));
}

void scheduler::watch(const net::request_view& in, completion& done) {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  auto& n = at(who.what, who.index);
  if (phase_ == phase::joining || in.header.epoch == servers_in_job_.members().epoch) {
    // A process that was replaced sees that in the membership; it must not replace its successor's watch.
    if (n.has_joined() && !n.holder.matches(body)) throw refusal(name(who.what, who.index) + " holds this place");
    auto& parked = n.watching;
    if (parked) parked.fail(net::status::conflict, "it watches again");
    parked = std::move(done);
    return;
  }
  done.answer({}, net::bytes_of(servers_in_job_.encoded()));
}

/// The membership has changed.
void scheduler::broadcast_membership() {
  const auto& all = servers_in_job_.encoded();
  for (auto* nodes : {&servers_, &workers_})
    for (auto& n : *nodes)
      if (n.watching) n.watching.answer({}, net::bytes_of(all));
}

void scheduler::name_busy(std::uint32_t slot, const json& list, time_point now) {
  const auto& holder = servers_[slot].holder;
  if (!list.is_array() || !servers_[slot].is(seat_state::joined)) return;
  std::size_t seen = 0;
  for (const auto& item : list) {
    if (++seen > max_busy_items || !item.is_object()) break;
    const auto shard = item.find("shard");
    const auto function = text_or(item, "function", "?");
    const auto lasts = item.find("seconds");
    if (shard == item.end() || !shard->is_number_unsigned()) continue;
    if (shard->get<std::uint64_t>() >= membership::most_threads) continue;
    if (options_.hang_limit.count() != 0 && lasts != item.end() && lasts->is_number() &&
        lasts->get<double>() * 1000 > static_cast<double>(options_.hang_limit.count())) {
      char time[32];
      std::snprintf(time, sizeof time, "%.1f s", lasts->get<double>());
      const auto why = function + " has been running for " + time + " in thread " + json_text(*shard);
      if (!servers_in_job_.has_replicas()) return on_loss(role::server, slot, why, now);
      // Its other threads serve under a lease, which is no longer renewed.
      servers_[slot].become(seat_state::blocked);
      servers_[slot].cause = why;
      return;
    }
    auto& named = busy_[{slot, shard->get<std::uint32_t>()}];
    if (named.first == function && now - named.second < busy_again) continue;
    named = {function, now};
    events_(json_text({{"event", "busy"},
                       {"role", "server"},
                       {"index", slot},
                       {"pid", holder.pid},
                       {"host", holder.host},
                       {"shard", *shard},
                       {"function", function},
                       {"seconds", lasts != item.end() && lasts->is_number() ? *lasts : json(0)}}),
            false);
  }
}

void scheduler::progress(const net::request_view& in, completion& done, time_point now) {
  auto body = object_in(in);
  for (const char* told : {"loaded", "output"}) {
    if (const auto what = body.find(told); what != body.end()) {
      events_(json_text({{"event", told}, {"what", *what}}), false);
      return done.ok();
    }
  }
  if (const auto warning = body.find("warning"); warning != body.end()) {
    events_(json_text({{"event", "warning"}, {"text", *warning}}), false);
    return done.ok();
  }
  body["event"] = "progress";
  held_progress_ = json_text(body);
  done.ok();
  if (now - last_progress_ >= progress_interval) emit_progress(now);
}

void scheduler::emit_progress(time_point now) {
  if (held_progress_.empty()) return;
  last_progress_ = now;
  events_(held_progress_, true);
  last_passed_on_ = std::exchange(held_progress_, {});
}

void scheduler::on_reply(std::uint64_t number, const net::reply_view& reply, time_point now) {
  removals_.on_reply(number, reply, now);
  commands_.on_reply(number, reply);
  if (!checkpoints_.on_reply(number, reply, now) || phase_ != phase::joining) return;
  if (const auto& why = checkpoints_.restore_failure(); !why.empty()) abort(exit_status::data, why, now);
  else if (checkpoints_.restored()) answer_joins(now);
}

}  // namespace paracel::srv
