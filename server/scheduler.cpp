// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "core/ring.hpp"

namespace paracel::srv {
namespace {

using nlohmann::json;

// A join with 1,024 shard addresses of 50 bytes is 51 kB; the rest is room.
constexpr std::size_t max_control_bytes = std::size_t{1} << 20;
constexpr std::size_t max_text_bytes = 1024;   // of a host or an address, as in core/membership.cpp
constexpr std::size_t max_cause_bytes = 4096;
constexpr std::size_t max_busy_items = 64;     // of one heartbeat
// The same long call is named again after this time, so that a log of hours shows that it is still the same.
constexpr std::chrono::seconds busy_again{30};
// Nobody reads faster; a job of a thousand rounds a second would keep the launcher busy with its progress.
constexpr std::chrono::milliseconds progress_interval{50};
// mpirun names the rank whose death made it end the others about 1.1 s after it has told them to go (measured, 4.1.4).
constexpr std::chrono::milliseconds early_leave_grace{1500};

/// A request that cannot be served; the text goes back to its sender.
class refusal : public error {
 public:
  using error::error;
};

std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

json object_in(const net::request_view& in) {
  if (in.body.size() > max_control_bytes) throw refusal("the body is longer than a control message can be");
  auto j = json::parse(net::text_of(in.body), nullptr, false);
  if (!j.is_object()) throw refusal("the body is no JSON object");
  return j;
}

std::uint64_t number(const json& j, const char* key, std::uint64_t most) {
  const auto it = j.find(key);
  if (it == j.end()) throw refusal(std::string("\"") + key + "\" is missing");
  // nlohmann keeps non-negative integers of a parsed text as unsigned
  if (!it->is_number_unsigned() || it->get<std::uint64_t>() > most)
    throw refusal(std::string("\"") + key + "\" is " + dump(*it) + ", not a whole number up to " + std::to_string(most));
  return it->get<std::uint64_t>();
}

std::string text(const json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_string() || it->get_ref<const std::string&>().size() > max_text_bytes)
    throw refusal(std::string("\"") + key + "\" is missing or no short string");
  return it->get<std::string>();
}

std::string address(const json& j, const char* key) {
  auto a = text(j, key);
  if (a.empty()) throw refusal(std::string("\"") + key + "\" is empty");
  return a;
}

std::string text_or(const json& j, const char* key, std::string otherwise) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::move(otherwise);
}

/// An exit status from outside; what no process can end with becomes the general failure.
int exit_status_in(const json& j) {
  const auto it = j.find("status");
  if (it == j.end() || !it->is_number_integer()) return exit_status::failure;
  const auto s = it->get<std::int64_t>();
  return s >= 0 && s <= 255 ? static_cast<int>(s) : exit_status::failure;
}

std::string seconds(std::chrono::milliseconds t) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f s", static_cast<double>(t.count()) / 1000.0);
  return out;
}

}  // namespace

struct scheduler::sender {
  role what = role::worker;
  std::uint32_t index = 0;

  static sender in(const json& j, const scheduler_options& options) {
    sender s;
    const auto it = j.find("role");
    if (it == j.end() || (*it != "server" && *it != "worker"))
      throw refusal("\"role\" must be \"server\" or \"worker\"");
    s.what = *it == "server" ? role::server : role::worker;
    const bool server = s.what == role::server;
    s.index = static_cast<std::uint32_t>(number(j, server ? "slot" : "rank", 0xffffffffU));
    const auto count = server ? options.servers : options.workers;
    if (s.index >= count)
      throw refusal((server ? "slot " : "rank ") + std::to_string(s.index) + ": the job has " + std::to_string(count) +
                    (server ? " servers" : " workers") + ", counted from 0");
    return s;
  }
};

scheduler::scheduler(scheduler_options options, event_sink events, time_point now)
    : options_(options),
      events_(std::move(events)),
      begin_(now),
      servers_(options.servers),
      workers_(options.workers),
      hub_({.max_ranks = options.workers}) {
  members_.job = options.job;
  members_.workers = options.workers;
  members_.servers.resize(options.servers);
}

std::string scheduler::name(role r, std::uint32_t index) const {
  const auto& n = r == role::server ? servers_[index] : workers_[index];
  return (r == role::server ? "server s" : "worker ") + std::to_string(index) + " (pid " + std::to_string(n.pid) +
         " on " + n.host + ")";
}

std::string scheduler::ended_json() const { return dump({{"status", status_}, {"cause", cause_}}); }

void scheduler::refuse_ended(completion& done) const { done.fail(net::status::job_ended, ended_json()); }

void scheduler::handle(const net::request_view& in, blob tail, completion done, time_point now) {
  if (in.header.job != options_.job)
    return done.fail(net::status::wrong_job, "this is the scheduler of job " + to_hex(options_.job) +
                                                 ", the request is of job " + to_hex(in.header.job));
  if (in.header.what == net::verb::ping) return done.ok();
  if (phase_ == phase::aborted && in.header.what != net::verb::heartbeat) {
    if (in.header.what == net::verb::leave) leave(in, std::move(done), now);
    else refuse_ended(done);
    return;
  }
  switch (in.header.what) {
    case net::verb::join: return join(in, std::move(done), now);
    case net::verb::heartbeat: return heartbeat(in, std::move(done), now);
    case net::verb::progress: return progress(in, std::move(done), now);
    case net::verb::leave: return leave(in, std::move(done), now);
    case net::verb::abort: return hear_abort(in, std::move(done), now);
    case net::verb::collective: return hub_.handle(in, std::move(tail), std::move(done));
    default:
      return done.fail(net::status::bad_request, std::string("a scheduler does not serve ") + net::name_of(in.header.what));
  }
}

void scheduler::join(const net::request_view& in, completion done, time_point now) try {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  if (at(who.what, who.index).joined) throw refusal(name(who.what, who.index) + " has joined already");
  if (phase_ != phase::joining) throw refusal("the job is complete");
  const auto host = text(body, "host");
  const auto pid = static_cast<int>(number(body, "pid", 0x7fffffff));
  json joined{{"event", "joined"}, {"host", host}, {"pid", pid}};
  if (who.what == role::server) {
    server_entry s;
    s.slot = who.index;
    s.host = host;
    s.pid = pid;
    const auto it = body.find("incarnation");
    if (it != body.end() && it->is_string()) s.incarnation = from_hex(it->get_ref<const std::string&>()).value_or(0);
    else s.incarnation = number(body, "incarnation", ~std::uint64_t{0});
    if (s.incarnation == 0) throw refusal("\"incarnation\" must be 16 hex digits or a number, and not 0");
    if (const auto weight = body.find("weight"); weight != body.end()) {
      if (!weight->is_number() || !(*weight >= ring::least_weight && *weight <= ring::greatest_weight))
        throw refusal("\"weight\" is " + dump(*weight) + ", not a number in [1/64, 64]");
      s.weight = weight->get<double>();
    }
    s.threads = static_cast<std::uint32_t>(number(body, "threads", membership::most_threads));
    const auto shards = body.find("shards");
    if (shards == body.end() || !shards->is_array() || shards->size() != s.threads || s.threads == 0)
      throw refusal("\"shards\" must have one address for each of the threads");
    for (const auto& a : *shards) s.shards.push_back(address({{"shards", a}}, "shards"));
    s.clock = address(body, "clock");
    s.control = address(body, "control");
    joined["role"] = "server";
    joined["index"] = who.index;
    joined["threads"] = s.threads;
    members_.servers[who.index] = std::move(s);
    ++servers_joined_;
  } else {
    const auto size = number(body, "size", 0xffffffffU);
    if (size != options_.workers)
      throw refusal("worker " + std::to_string(who.index) + " was started as one of " + std::to_string(size) +
                    " workers, the job has " + std::to_string(options_.workers));
    joined["role"] = "worker";
    joined["index"] = who.index;
    ++workers_joined_;
  }
  auto& n = at(who.what, who.index);
  n.joined = true;
  n.host = host;
  n.pid = pid;
  n.joining = std::move(done);
  events_(dump(joined), false);
  answer_joins(now);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

/// From its answer on a node must beat; before it, it may be waiting for the others without a heartbeat.
void scheduler::answer_joins(time_point now) {
  if (servers_joined_ < options_.servers) return;
  const auto all = members_.to_json();
  const auto answer = [&](node& n) {
    if (!n.joining) return;
    n.last_sign = now;
    n.joining.answer({}, net::bytes_of(all));
  };
  for (auto& n : servers_) answer(n);
  if (workers_joined_ < options_.workers) return;
  phase_ = phase::running;
  for (auto& n : workers_) answer(n);
  events_(dump({{"event", "started"}, {"workers", options_.workers}, {"servers", options_.servers}}), false);
}

void scheduler::heartbeat(const net::request_view& in, completion done, time_point now) try {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  auto& n = at(who.what, who.index);
  // The beats have a connection of their own and may overtake the join.
  const bool known = n.joined && (!body.contains("pid") || body["pid"] == n.pid);
  if (n.joined && !known) throw refusal(name(who.what, who.index) + " holds this place");
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
  if (known) {
    n.last_sign = now;
    const auto busy = body.find("busy");
    if (who.what == role::server && busy != body.end()) name_busy(who.index, *busy, now);
  }
  done.ok();
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
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
    auto& named = busy_[{slot, shard->get<std::uint32_t>()}];
    if (named.first == function && now - named.second < busy_again) continue;
    named = {function, now};
    const auto& n = servers_[slot];
    events_(dump({{"event", "busy"}, {"role", "server"}, {"index", slot}, {"pid", n.pid}, {"host", n.host},
                  {"shard", *shard}, {"function", function},
                  {"seconds", lasts != item.end() && lasts->is_number() ? *lasts : json(0)}}),
            false);
  }
}

void scheduler::progress(const net::request_view& in, completion done, time_point now) try {
  auto body = object_in(in);
  body["event"] = "progress";
  held_progress_ = dump(body);
  done.ok();
  if (now - last_progress_ >= progress_interval) emit_progress(now);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

void scheduler::emit_progress(time_point now) {
  if (held_progress_.empty()) return;
  last_progress_ = now;
  events_(held_progress_, true);
  held_progress_.clear();
}

void scheduler::leave(const net::request_view& in, completion done, time_point now) try {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  auto& n = at(who.what, who.index);
  if (phase_ == phase::aborted) {
    n.gone = true;
    return refuse_ended(done);
  }
  if (!n.joined) throw refusal("it has not joined");
  const bool first = !n.gone;
  n.gone = true;
  done.ok();
  if (!first) return;
  const int status = exit_status_in(body);
  if (who.what == role::server) {
    if (phase_ == phase::done) return;
    if (!left_early_) left_early_.emplace(who.index, now);
    events_(dump({{"event", "left"}, {"role", "server"}, {"index", who.index}, {"status", status}}), false);
    return;
  }
  events_(dump({{"event", "left"}, {"role", "worker"}, {"index", who.index}, {"status", status}}), false);
  if (status != 0) {
    abort(status, name(who.what, who.index) + " ended with status " + std::to_string(status), now);
    return;
  }
  // Ranks of communicator 0 are the workers' own; a collective that waits for one that has left would wait for ever.
  hub_.depart(0, who.index, "worker " + std::to_string(who.index) + " has left the job");
  if (++workers_left_ < options_.workers) return;
  phase_ = phase::done;
  ended_at_ = now;
  emit_progress(now);
  events_(dump({{"event", "done"}}), false);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

void scheduler::hear_abort(const net::request_view& in, completion done, time_point now) try {
  const auto body = object_in(in);
  const int status = exit_status_in(body);
  auto cause = text_or(body, "cause", "a node ended the job without saying why");
  if (cause.size() > max_cause_bytes) cause.resize(max_cause_bytes);
  done.ok();
  abort(status == 0 ? exit_status::failure : status, cause, now);
} catch (const refusal& e) {
  done.fail(net::status::bad_request, e.what());
}

void scheduler::abort(int status, const std::string& cause, time_point now) {
  if (phase_ == phase::aborted || phase_ == phase::done) return;
  phase_ = phase::aborted;
  status_ = status;
  cause_ = cause;
  ended_at_ = now;
  emit_progress(now);
  events_(dump({{"event", "abort"}, {"status", status}, {"cause", cause}}), false);
  const auto why = ended_json();
  for (auto* nodes : {&servers_, &workers_})
    for (auto& n : *nodes)
      if (n.joining) n.joining.fail(net::status::job_ended, why);
  hub_.fail_all(net::status::job_ended, why);
}

void scheduler::lose(role r, std::uint32_t index, time_point now) {
  auto& n = at(r, index);
  n.gone = true;
  const bool server = r == role::server;
  const int status = server ? exit_status::server_lost : exit_status::worker_lost;
  const auto cause = name(r, index) + " lost: no heartbeat for " +
                     seconds(std::chrono::duration_cast<std::chrono::milliseconds>(now - *n.last_sign));
  events_(dump({{"event", "lost"}, {"role", server ? "server" : "worker"}, {"index", index}, {"pid", n.pid},
                {"host", n.host}, {"cause", cause}, {"status", status}}),
          false);
  abort(status, cause, now);
}

std::string scheduler::missing() const {
  std::string text;
  std::size_t left_out = 0;
  const auto list = [&](const std::vector<node>& nodes, const char* prefix) {
    std::size_t named = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].joined) continue;
      if (named++ < 8) text += (text.empty() ? "" : ", ") + std::string(prefix) + std::to_string(i);
      else ++left_out;
    }
  };
  list(servers_, "server s");
  list(workers_, "worker ");
  if (left_out != 0) text += " and " + std::to_string(left_out) + " more";
  return text;
}

void scheduler::tick(time_point now) {
  if (phase_ == phase::done || phase_ == phase::aborted) return;
  if (now - last_progress_ >= progress_interval) emit_progress(now);
  const auto look = [&](role r, std::vector<node>& nodes) {
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const auto& n = nodes[i];
      if (n.joined && !n.gone && n.last_sign && now - *n.last_sign > options_.heartbeat_limit) lose(r, i, now);
    }
  };
  look(role::server, servers_);
  look(role::worker, workers_);
  if (left_early_ && now - left_early_->second > early_leave_grace)
    abort(exit_status::server_lost, name(role::server, left_early_->first) + " left before the workers had finished", now);
  if (phase_ == phase::joining && now - begin_ > options_.join_limit)
    abort(exit_status::timeout,
          "the job did not start within " + seconds(options_.join_limit) + ": " + missing() + " did not join", now);
}

bool scheduler::everybody_knows(time_point now) const noexcept {
  if (phase_ != phase::done && phase_ != phase::aborted) return false;
  if (now - ended_at_ > options_.heartbeat_limit) return true;
  const auto knows = [](const node& n) { return n.joined && n.gone; };
  return std::ranges::all_of(servers_, knows) && std::ranges::all_of(workers_, knows);
}

}  // namespace paracel::srv
