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
      commands_(options_.workers, std::move(send)) {
  servers_in_job_.plan_checkpoints(checkpoints_.plan());
  if (options_.worker_wait.count() != 0)
    collectives_.keep_answers({.ranks = options_.workers, .folder = options_.answers_folder});
}

std::string scheduler::name(role r, std::uint32_t index) const {
  const auto& n = r == role::server ? servers_[index] : workers_[index];
  return (r == role::server ? "server s" : "worker ") + std::to_string(index) + " (pid " + std::to_string(n.pid) +
         " on " + n.host + ")";
}

std::string scheduler::ended_json() const { return json_text({{"status", status_}, {"cause", cause_}}); }

void scheduler::refuse_ended(completion& done) const { done.fail(net::status::job_ended, ended_json()); }

void scheduler::handle(const net::request_view& in, shared_buffer tail, completion done, time_point now) {
  if (in.header.job != options_.job)
    return done.fail(net::status::wrong_job,
                     "this is the scheduler of job " + to_hex(options_.job) + ", the request is of another");
  if (const auto no = refused_at(place::scheduler, in.header, options_.job, options_.job))
    return done.fail(no->why, no->text);
  if (in.header.what == net::verb::ping) return done.ok();
  if (in.header.what == net::verb::stats) return done.answer({}, net::bytes_of(report(now)));
  if (phase_ == phase::aborted && in.header.what != net::verb::heartbeat) {
    if (in.header.what == net::verb::leave) leave(in, std::move(done), now);
    else refuse_ended(done);
    return;
  }
  switch (in.header.what) {
    case net::verb::join:
      return join(in, std::move(done), now);
    case net::verb::heartbeat:
      return heartbeat(in, std::move(done), now);
    case net::verb::progress:
      return progress(in, std::move(done), now);
    case net::verb::leave:
      return leave(in, std::move(done), now);
    case net::verb::abort:
      return on_abort(in, std::move(done), now);
    case net::verb::watch:
      return watch(in, std::move(done));
    case net::verb::report_death:
      return on_death_report(in, std::move(done), now);
    case net::verb::resize:
      return resize(in, std::move(done), now);
    case net::verb::find_worker:
      return find_worker(in, std::move(done));
    case net::verb::tell:
      return tell(in, std::move(done), now);
    case net::verb::take_commands:
      return take_commands(in, std::move(done), now);
    case net::verb::checkpoint:
      return checkpoints_.handle(in, std::move(done), servers_in_job_.members(), now);
    case net::verb::collective:
      return collective(in, std::move(tail), std::move(done));
    default:
      return;  // already rejected
  }
}

void scheduler::join(const net::request_view& in, completion done, time_point now) try {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  const bool enters = who.what == role::server && phase_ == phase::running && awaits(who.index);
  const bool returns =
      enters || (phase_ == phase::running &&
                 (is_awaited(who.what, who.index) ||
                  (who.what == role::server && servers_in_job_.state(who.index) == server_state::down)));
  if (at(who.what, who.index).joined && !returns) throw refusal(name(who.what, who.index) + " has joined already");
  if (phase_ != phase::joining && !returns) throw refusal("the job is complete");
  const auto host = text_in(body, "host");
  const auto pid = static_cast<int>(whole_number_in(body, "pid", 0x7fffffff));
  auto& reaped = at(who.what, who.index).reaped;
  const auto dead = std::ranges::find_if(
      reaped, [&](const auto& r) { return r.first == pid && (r.second.empty() || r.second == host); });
  if (dead != reaped.end()) {
    reaped.erase(dead);  // its number may be used again
    throw refusal("the death of this process has been reported");
  }
  json joined{{"event", "joined"}, {"host", host}, {"pid", pid}};
  const auto before = holder(who);
  if (who.what == role::server) {
    server_entry s;
    s.slot = who.index;
    s.host = host;
    s.pid = pid;
    const auto it = body.find("incarnation");
    if (it != body.end() && it->is_string()) s.incarnation = from_hex(it->get_ref<const std::string&>()).value_or(0);
    else s.incarnation = whole_number_in(body, "incarnation", ~std::uint64_t{0});
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
    joined["role"] = "server";
    joined["index"] = who.index;
    joined["threads"] = s.threads;
    if (returns) {
      if (enters) {
        servers_in_job_.admit(std::move(s));
        entering_.reset();
        checkpoints_.servers_changed("server s" + std::to_string(who.index) + " joined meanwhile");
      } else {
        const auto& lost = servers_in_job_.members().servers[who.index];
        if (s.weight != lost.weight || s.threads != lost.threads)  // other partitions would be its own
          throw refusal("a replacement of s" + std::to_string(who.index) + " must have its weight " +
                        json_text(lost.weight) + " and its " + std::to_string(lost.threads) + " threads, not " +
                        json_text(s.weight) + " and " + std::to_string(s.threads));
        servers_in_job_.rejoin(std::move(s));
      }
      joined["epoch"] = servers_in_job_.members().epoch;
    } else {
      servers_in_job_.enter(std::move(s));
      ++servers_joined_;
    }
  } else {
    const auto size = whole_number_in(body, "size", 0xffffffffU);
    if (size != options_.workers)
      throw refusal("worker " + std::to_string(who.index) + " was started as one of " + std::to_string(size) +
                    " workers, the job has " + std::to_string(options_.workers));
    joined["role"] = "worker";
    joined["index"] = who.index;
    if (!returns) ++workers_joined_;
  }
  auto& n = at(who.what, who.index);
  if (who.what == role::worker) n.address = body.contains("address") ? address_in(body, "address") : "";
  if (returns && n.joined) n.earlier.push_back(before);
  if (returns && who.what == role::worker) {
    n.host = host;
    n.pid = pid;
    n.client = in.header.client;
    events_(json_text(joined), false);
    return take_place(who.index, body, std::move(done), now);
  }
  if (returns) {
    auto earlier = std::move(n.earlier);
    n = {};
    n.earlier = std::move(earlier);
  }
  n.joined = true;
  n.client = in.header.client;
  n.host = host;
  n.pid = pid;
  n.joining = std::move(done);
  events_(json_text(joined), false);
  if (!returns) return answer_joins(now);
  n.last_sign = now;
  n.joining.answer({}, net::bytes_of(servers_in_job_.members().to_json()));
  broadcast_membership();
  note_change(role::server, who.index);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

void scheduler::find_worker(const net::request_view& in, completion done) const try {
  const auto body = object_in(in);
  const auto rank = static_cast<std::uint32_t>(whole_number_in(body, "rank", options_.workers - 1));
  const auto& n = workers_[rank];
  const bool awaited = is_awaited(role::worker, rank);
  std::string gone;
  if (n.ejected) gone = "it was ejected";
  else if (awaited) gone = n.lost_cause;
  else if (n.gone) gone = "it has left the job";
  else if (!n.joined || n.address.empty()) gone = "it has no address for messages";
  const auto answer = json_text(json{{"address", n.address}, {"turn", n.turn}, {"gone", gone}, {"awaited", awaited}});
  done.answer({}, net::bytes_of(answer));
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

/// From this reply on a node must send heartbeats; before it, it may be waiting for the others without sending any.
void scheduler::answer_joins(time_point now) {
  PARACEL_CHECK(servers_joined_ <= options_.servers && workers_joined_ <= options_.workers);
  if (servers_joined_ < options_.servers) return;
  const auto all = servers_in_job_.members().to_json();
  const auto answer = [&](node& n) {
    if (!n.joining) return;
    n.last_sign = now;
    n.joining.answer({}, net::bytes_of(all));
  };
  for (auto& n : servers_) answer(n);
  checkpoints_.restore(servers_in_job_.members(), now);
  if (workers_joined_ < options_.workers || !checkpoints_.restored()) return;
  phase_ = phase::running;
  for (auto& n : workers_) answer(n);
  events_(json_text({{"event", "started"}, {"workers", options_.workers}, {"servers", options_.servers}}), false);
}

void scheduler::heartbeat(const net::request_view& in, completion done, time_point now) try {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  auto& n = at(who.what, who.index);
  // The heartbeats have their own connection and may overtake the join.
  const bool lost = is_awaited(who.what, who.index) ||
                    (who.what == role::server && servers_in_job_.state(who.index) == server_state::down);
  const bool known = n.joined && is_of(body, holder(who));
  const bool is_awaited = who.what == role::server && awaits(who.index);
  if (n.joined && !known && !lost && !is_awaited) throw refusal(name(who.what, who.index) + " holds this place");
  if (phase_ == phase::aborted) {
    if (known) n.gone = true;
    net::reply_header fields;
    fields.order = net::instruction::abort;
    const auto why = ended_json();
    return done.answer(fields, net::bytes_of(why));
  }
  if (phase_ == phase::done) {
    if (known) n.gone = true;
    net::reply_header fields;
    fields.order = net::instruction::shutdown;
    return done.answer(fields);
  }
  if (known && who.what == role::server &&
      servers_in_job_.state(who.index) == server_state::gone) {  // it is no longer needed
    n.gone = true;
    net::reply_header fields;
    fields.order = net::instruction::shutdown;
    return done.answer(fields);
  }
  const bool is_replaced = !known && std::ranges::any_of(n.earlier, [&](const auto& p) { return is_of(body, p); });
  if ((lost && known) || is_replaced || n.ejected) {  // it was suspended or cut off: others have replaced it
    return tell_to_end(
        done, who.what == role::server ? exit_status::server_lost : exit_status::worker_lost,
        is_replaced ? "another process has replaced it" : name(who.what, who.index) + " was considered lost");
  }
  if (known && n.hung.empty()) {
    n.last_sign = now;
    const auto clock = body.find("clock");
    if (clock != body.end() && clock->is_number_unsigned())
      n.clock = static_cast<std::uint32_t>(std::min<std::uint64_t>(clock->get<std::uint64_t>(), 0xffffffffU));
    if (who.what == role::worker) on_worker_heartbeat(who.index, body);
    const auto take_bytes = [&](const char* key, std::uint64_t& out) {
      const auto bytes = body.find(key);
      if (bytes != body.end() && bytes->is_number_unsigned()) out = bytes->get<std::uint64_t>();
    };
    take_bytes("memory_bytes", n.memory_bytes);
    take_bytes("resident_bytes", n.resident_bytes);
    const auto busy = body.find("busy");
    if (who.what == role::server && busy != body.end()) name_busy(who.index, *busy, now);
    const auto synced = body.find("synced");
    if (who.what == role::server && synced != body.end() && synced->is_number_unsigned())
      on_synced(who.index, synced->get<std::uint64_t>());
  }
  if (known && !n.hung.empty()) return tell_to_end(done, exit_status::server_lost, n.hung);
  net::reply_header fields;
  if (known) fields.count = net::known_sender;
  done.answer(fields);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

/// The reply to the heartbeat of a process that the job continues without.
void scheduler::tell_to_end(completion& done, int with_status, const std::string& why) {
  net::reply_header fields;
  fields.order = net::instruction::abort;
  const auto body = json_text({{"status", with_status}, {"cause", why + "; the job continues without it"}});
  done.answer(fields, net::bytes_of(body));
}

/// The process that has, or had last, the position that a message names.
scheduler::process scheduler::holder(const sender& who) const {
  const bool server = who.what == role::server;
  const auto& n = server ? servers_[who.index] : workers_[who.index];
  const bool entered = server && who.index < servers_in_job_.members().servers.size();
  return {n.pid, n.host, entered ? servers_in_job_.at(who.index).incarnation : 0};
}

/// Whether a heartbeat or a launcher refers to this process. A launcher knows only the pid.
bool scheduler::is_of(const nlohmann::json& body, const process& p) {
  if (const auto pid = body.find("pid"); pid != body.end() && *pid != p.pid) return false;
  if (const auto host = body.find("host"); host != body.end() && *host != p.host) return false;
  const auto incarnation = body.find("incarnation");
  return p.incarnation == 0 || incarnation == body.end() || !incarnation->is_string() ||
         from_hex(incarnation->get_ref<const std::string&>()) == p.incarnation;
}

void scheduler::watch(const net::request_view& in, completion done) try {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  // A process that was replaced sees that in the membership; it must not replace its successor's watch.
  const bool replaced = at(who.what, who.index).joined && !is_of(body, holder(who));
  if (replaced && (phase_ == phase::joining || in.header.epoch == servers_in_job_.members().epoch))
    throw refusal(name(who.what, who.index) + " holds this place");
  if (phase_ == phase::joining || in.header.epoch == servers_in_job_.members().epoch) {
    auto& parked = at(who.what, who.index).watching;
    if (parked) parked.fail(net::status::conflict, "it watches again");
    parked = std::move(done);
    return;
  }
  done.answer({}, net::bytes_of(servers_in_job_.members().to_json()));
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

/// The membership has changed.
void scheduler::broadcast_membership() {
  const auto all = servers_in_job_.members().to_json();
  for (auto* nodes : {&servers_, &workers_})
    for (auto& n : *nodes)
      if (n.watching) n.watching.answer({}, net::bytes_of(all));
}

void scheduler::name_busy(std::uint32_t slot, const json& list, time_point now) {
  if (!list.is_array()) return;
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
      // Its other threads serve under a lease, which is no longer renewed; the server is lost when that has expired, or
      // at its exit.
      servers_[slot].hung = why;
      return;
    }
    auto& named = busy_[{slot, shard->get<std::uint32_t>()}];
    if (named.first == function && now - named.second < busy_again) continue;
    named = {function, now};
    const auto& n = servers_[slot];
    events_(json_text({{"event", "busy"},
                       {"role", "server"},
                       {"index", slot},
                       {"pid", n.pid},
                       {"host", n.host},
                       {"shard", *shard},
                       {"function", function},
                       {"seconds", lasts != item.end() && lasts->is_number() ? *lasts : json(0)}}),
            false);
  }
}

void scheduler::progress(const net::request_view& in, completion done, time_point now) try {
  auto body = object_in(in);
  if (const auto warning = body.find("warning"); warning != body.end()) {
    events_(json_text({{"event", "warning"}, {"text", *warning}}), false);
    return done.ok();
  }
  body["event"] = "progress";
  held_progress_ = json_text(body);
  done.ok();
  if (now - last_progress_ >= progress_interval) emit_progress(now);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
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
