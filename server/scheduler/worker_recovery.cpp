// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that die, and jobs that continue: without them (eject), or with replacements (await).
#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/json_io.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

namespace {

constexpr std::size_t most_ranges = 1U << 16;  // of one heartbeat

}  // namespace

/// `clock_thread` and the epoch are for the launcher.
void scheduler::eject(std::uint32_t rank, const std::string& cause) {
  auto& n = workers_[rank];
  n.ejected = true;
  ++workers_left_;
  const auto& members = servers_in_job_.members();
  events_(json_text({{"event", "ejected"},
                     {"role", "worker"},
                     {"index", rank},
                     {"pid", n.pid},
                     {"host", n.host},
                     {"cause", cause},
                     {"clock", n.clock},
                     {"clock_thread", members.servers[key_router(members).clock_server()].clock},
                     {"epoch", members.epoch}}),
          false);
  hub_.eject(0, rank, "worker " + std::to_string(rank) + " was ejected: " + cause);
  checkpoints_.worker_left(rank, members);
}

/// The clock does not pass what this worker has committed, so the others wait implicitly.
void scheduler::await(std::uint32_t rank, const std::string& cause, time_point now) {
  auto& n = workers_[rank];
  n.awaited = now;
  n.lost_cause = cause;
  if (n.watching) n.watching.fail(net::status::conflict, "another process is awaited in its place");
  events_(json_text({{"event", "awaited"},
                     {"role", "worker"},
                     {"index", rank},
                     {"pid", n.pid},
                     {"host", n.host},
                     {"cause", cause},
                     {"clock", n.clock},
                     {"seconds", std::chrono::duration<double>(options_.worker_wait).count()}}),
          false);
}

void scheduler::take_place(std::uint32_t rank, const json& body, completion done, time_point now) {
  auto& n = workers_[rank];
  n.gone = false;
  n.last_sign = now;
  ++n.turn;
  if (const auto cannot = body.find("cannot"); cannot != body.end() && cannot->is_string()) {
    abort(exit_status::worker_lost,
          n.lost_cause + "; no other process can go on in its place: " + cannot->get<std::string>(), now);
    return refuse_ended(done);
  }
  if (const auto clock = body.find("clock"); clock != body.end() && clock->is_number_unsigned()) {
    n.clock = static_cast<std::uint32_t>(std::min<std::uint64_t>(clock->get<std::uint64_t>(), net::no_clock));
    checkpoints_.worker_passed(rank, n.clock);
  }
  hub_.replace(rank);
  net::reply_header fields;
  fields.count = n.turn;
  fields.value_version = hub_.called(rank);
  const auto members = servers_in_job_.members().to_json();
  done.answer(fields, net::bytes_of(members));
}

void scheduler::on_worker_death(std::uint32_t rank, const json& body) {
  auto* kept = hub_.kept();
  if (kept == nullptr) return;
  if (workers_[rank].awaited && body.value("caught_up", json()) == true) caught_up(rank);
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

void scheduler::caught_up(std::uint32_t rank) {
  auto& n = workers_[rank];
  n.awaited.reset();
  events_(json_text({{"event", "caught_up"}, {"role", "worker"}, {"index", rank}, {"pid", n.pid}, {"host", n.host}}),
          false);
}

void scheduler::look_at_awaited(time_point now) {
  for (const auto& n : workers_) {
    if (!n.awaited || now - *n.awaited <= options_.worker_wait) continue;
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", std::chrono::duration<double>(options_.worker_wait).count());
    return abort(exit_status::worker_lost,
                 n.lost_cause + "; within " + limit + " no other process had come to where it was (--on-worker-death)",
                 now);
  }
}

/// Late messages of a replaced process are not its successor's.
void scheduler::collective(const net::request_view& in, shared_buffer tail, completion done) {
  const auto rank = in.header.rank;
  if (in.header.table == 0 && rank < workers_.size() && workers_[rank].client != in.header.client)
    return done.fail(net::status::bad_request, "another process is worker " + std::to_string(rank) + " now");
  hub_.handle(in, std::move(tail), std::move(done));
}

}  // namespace paracel::srv
