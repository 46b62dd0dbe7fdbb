// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that die, and jobs that continue: without them (eject), or with replacements (await).
#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

namespace {

constexpr std::size_t most_ranges = 1U << 16;  // of one heartbeat
constexpr std::size_t most_reaped = 16;

}  // namespace

/// Why the job ends when it loses this worker although it survives others; empty: no such reason.
std::string scheduler::why_needed(std::uint32_t rank, const worker_end& end) const {
  const bool waits = options_.worker_wait.count() != 0;
  if (end.exited || !(waits || options_.eject_workers)) return {};
  if (phase_ == phase::joining) return "the others continue without a worker only when all have joined";
  if (waits) return end.cannot;
  return rank == 0 ? "worker 0 writes the results: it cannot be ejected" : "";
}

/// A worker that fails by itself ends the job: the others would fail in the same way.
void scheduler::on_worker_loss(std::uint32_t rank, const worker_end& end, time_point now) {
  auto& n = workers_[rank];
  auto cause = (n.has_joined() ? name(role::worker, rank) : "worker " + std::to_string(rank)) + " lost: " + end.why;
  const auto why_not = why_needed(rank, end);
  ++counts_.losses[1];
  if (phase_ == phase::running && !end.exited && why_not.empty()) {
    if (options_.worker_wait.count() != 0) {
      losses_.emplace_back(now, cause);
      return await(rank, cause, now);
    }
    if (options_.eject_workers) {
      losses_.emplace_back(now, cause);
      eject(rank, cause, end.reaped, now);
      return end_when_all_left(now);
    }
  }
  n.become(seat_state::lost);
  const int with_status = end.exited.value_or(exit_status::worker_lost);
  if (!why_not.empty()) cause += "; " + why_not;
  auto event = lost_event(role::worker, rank, cause, with_status);
  if (!why_not.empty()) event["why_not"] = why_not;
  emit_progress(now);  // before the cause
  events_(json_text(event), false);
  abort(with_status, cause, now);
}

/// Returns whether the job continues, as far as this death is concerned.
bool scheduler::on_worker_reaped(std::uint32_t rank, const json& body, std::string why, time_point now) {
  worker_end end{.why = std::move(why), .reaped = true, .cannot = cause_or(body, "cannot", "")};
  if (body.contains("status")) end.exited = exit_status_in(body);
  auto& n = workers_[rank];
  // A report may arrive when its position already belongs to another process.
  const bool is_known = n.has_joined() ? n.is_held_by(body) : phase_ == phase::joining;
  if (!is_known) {
    if (body.contains("pid"))
      n.reaped.emplace_back(static_cast<int>(whole_number_in(body, "pid", 0x7fffffff)), cause_or(body, "host", ""));
    if (n.reaped.size() > most_reaped) n.reaped.erase(n.reaped.begin());
    return !end.exited;
  }
  if (n.is(seat_state::ejected)) {
    removals_.remove(rank, servers_in_job_.members(), now);
    return true;
  }
  const bool is_awaited = n.is(seat_state::awaited);
  if (is_awaited ? end.cannot.empty() : !end.exited && (phase_ == phase::done || n.is_gone())) return true;
  if (is_awaited) end.exited.reset();  // it was told to exit
  on_worker_loss(rank, end, now);
  return !end.exited && phase_ != phase::aborted;
}

/// The others continue without this worker. If its process may still be alive, it leaves the clock when its death is
/// reported: until then it may take part.
void scheduler::eject(std::uint32_t rank, const std::string& cause, bool reaped, time_point now) {
  auto& n = workers_[rank];
  PARACEL_CHECK(rank != 0);
  n.become(seat_state::ejected);
  n.cause = cause;
  ++workers_left_;
  const auto& members = servers_in_job_.members();
  events_(json_text({{"event", "ejected"},
                     {"role", "worker"},
                     {"index", rank},
                     {"pid", n.holder.pid},
                     {"host", n.holder.host},
                     {"cause", cause},
                     {"clock", n.clock},
                     {"reaped", reaped}}),
          false);
  collectives_.eject(0, rank, "worker " + std::to_string(rank) + " was ejected: " + cause);
  checkpoints_.worker_left(rank, members);
  commands_.worker_gone(rank, cause);
  note_change(role::worker, rank);
  if (reaped) removals_.remove(rank, members, now);
}

void scheduler::check_removals(time_point now) {
  const auto rank = removals_.tick(servers_in_job_.members(), now);
  if (!rank) return;
  const auto cause = workers_[*rank].cause + ", and the others could not be told";
  events_(json_text(lost_event(role::worker, *rank, cause, exit_status::worker_lost)), false);
  abort(exit_status::worker_lost, cause, now);
}

/// The clock does not pass what this worker has committed, so the others wait implicitly.
void scheduler::await(std::uint32_t rank, const std::string& cause, time_point now) {
  auto& n = workers_[rank];
  n.become(seat_state::awaited);
  n.lost_at = now;
  n.cause = cause;
  if (n.watching) n.watching.fail(net::status::conflict, "another process is awaited in its place");
  events_(json_text({{"event", "awaited"},
                     {"role", "worker"},
                     {"index", rank},
                     {"pid", n.holder.pid},
                     {"host", n.holder.host},
                     {"cause", cause},
                     {"clock", n.clock},
                     {"seconds", std::chrono::duration<double>(options_.worker_wait).count()}}),
          false);
  commands_.worker_gone(rank, cause);
  note_change(role::worker, rank);
}

void scheduler::take_place(std::uint32_t rank, const json& body, completion& done, time_point now) {
  auto& n = workers_[rank];
  n.become(seat_state::catching_up);
  n.last_sign = now;
  ++n.turn;
  if (const auto cannot = body.find("cannot"); cannot != body.end() && cannot->is_string()) {
    abort(exit_status::worker_lost, n.cause + "; no other process can replace it: " + cannot->get<std::string>(), now);
    return refuse_ended(done);
  }
  const auto clock = body.find("clock");
  const bool has_state = clock != body.end() && clock->is_number_unsigned();
  const auto& plan = checkpoints_.plan();
  const std::uint64_t begins = has_state ? clock->get<std::uint64_t>() : plan.resume.empty() ? 0 : plan.clock;
  // It saves each commit before it tells anybody, so this folder is not the one in which it did, or has lost what was
  // written, with the host: to begin there would count iterations twice.
  if (begins < n.clock) {
    abort(exit_status::worker_lost,
          n.cause + "; no other process can replace it: it had committed iteration " + std::to_string(n.clock) +
              ", and the state found in the folder of the run is of " +
              (has_state ? "iteration " + std::to_string(begins) : std::string("none")),
          now);
    return refuse_ended(done);
  }
  if (has_state) {
    n.clock = static_cast<std::uint32_t>(std::min<std::uint64_t>(begins, net::no_clock));
    checkpoints_.worker_passed(rank, n.clock);
  }
  collectives_.replace(rank);
  note_change(role::worker, rank);
  commands_.worker_joins(rank);
  net::reply_header fields;
  fields.count = n.turn;
  fields.value_version = collectives_.called(rank);
  const auto& members = servers_in_job_.encoded();
  done.answer(fields, net::bytes_of(members));
}

void scheduler::on_worker_heartbeat(std::uint32_t rank, const json& body) {
  auto* kept = collectives_.kept();
  if (kept == nullptr) return;
  if (auto& n = workers_[rank]; n.is(seat_state::catching_up) && body.value("caught_up", json()) == true) {
    n.become(seat_state::joined);
    note_caught_up(rank);
  }
  const auto of = body.find("collectives");
  if (of == body.end() || !of->is_object() || !of->contains("from") || !of->at("from").is_number_unsigned()) return;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> again;
  for (const auto& range : of->value("again", json::array())) {
    const bool whole =
        range.is_array() && range.size() == 2 && range[0].is_number_unsigned() && range[1].is_number_unsigned();
    if (!whole || again.size() == most_ranges) return;
    again.emplace_back(range[0].get<std::uint64_t>(), range[1].get<std::uint64_t>());
  }
  kept->needs(rank, std::move(again), of->at("from").get<std::uint64_t>());
}

void scheduler::note_caught_up(std::uint32_t rank) {
  const auto& holder = workers_[rank].holder;
  events_(
      json_text(
          {{"event", "caught_up"}, {"role", "worker"}, {"index", rank}, {"pid", holder.pid}, {"host", holder.host}}),
      false);
  note_change(role::worker, rank);
}

void scheduler::check_awaited(time_point now) {
  for (const auto& n : workers_) {
    const bool is_waited_for = n.is(seat_state::awaited) || n.is(seat_state::catching_up);
    if (!is_waited_for || now - n.lost_at <= options_.worker_wait) continue;
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", std::chrono::duration<double>(options_.worker_wait).count());
    return abort(exit_status::worker_lost,
                 n.cause + "; no replacement had caught up within " + limit + " (--on-worker-death)", now);
  }
}

/// Late messages of a replaced process do not count as its successor's.
void scheduler::collective(const net::request_view& in, shared_buffer tail, completion& done) {
  const auto rank = in.header.rank;
  if (in.header.table == 0 && rank < workers_.size() && workers_[rank].client != in.header.client)
    return done.fail(net::status::bad_request, "another process is worker " + std::to_string(rank) + " now");
  collectives_.handle(in, std::move(tail), std::move(done));
}

}  // namespace paracel::srv
