// SPDX-License-Identifier: BSD-3-Clause
//
// Processes that leave or end the job.
#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

void scheduler::leave(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  auto& n = at(who.what, who.index);
  if (n.is_held_by(body)) emit_usage(who.what, who.index, body);
  if (phase_ == phase::aborted) {
    n.dismiss();
    return refuse_ended(done);
  }
  if (!n.has_joined()) throw refusal("it has not joined");
  if (!n.is_held_by(body)) throw refusal(name(who.what, who.index) + " holds this place");
  if (n.is_gone()) return done.ok();
  const int status = exit_status_in(body);
  if (const auto words = body.find("last_words"); words != body.end() && who.what == role::server) {
    done.ok();
    return on_last_words(who.index, *words, now);
  }
  if (who.what == role::server) {
    done.ok();
    if (phase_ == phase::running && servers_in_job_.may_change())
      return on_loss(role::server, who.index, "it left with status " + std::to_string(status), now);
    n.become(seat_state::left);
    if (phase_ == phase::done) return;
    if (!left_early_) left_early_.emplace(who.index, now);
    events_(json_text({{"event", "left"}, {"role", "server"}, {"index", who.index}, {"status", status}}), false);
    return;
  }
  const bool was_catching_up = n.is(seat_state::catching_up);
  n.become(seat_state::left);
  // Before the reply, so that an observer of that process's exit can know that it was not premature.
  events_(json_text({{"event", "left"}, {"role", "worker"}, {"index", who.index}, {"status", status}}), false);
  done.ok();
  if (status != 0) {
    abort(status, name(who.what, who.index) + " ended with status " + std::to_string(status), now);
    return;
  }
  if (n.watching)
    n.watching.fail(net::status::conflict, "it has left");  // its thread need not look for a reply any more
  // Ranks of communicator 0 are the workers' own; a collective that waits for one that has left would wait forever.
  collectives_.depart(0, who.index, "worker " + std::to_string(who.index) + " has left the job");
  if (was_catching_up) note_caught_up(who.index);
  if (auto* kept = collectives_.kept()) kept->needs_nothing(who.index);
  checkpoints_.worker_left(who.index, servers_in_job_.members());
  commands_.worker_gone(who.index, "it has left the job");
  ++workers_left_;
  end_when_all_left(now);
}

void scheduler::end_when_all_left(time_point now) {
  PARACEL_CHECK(workers_left_ <= options_.workers);
  if (workers_left_ < options_.workers) return;
  phase_ = phase::done;
  ended_at_ = now;
  emit_progress(now);
  events_(json_text({{"event", "done"}}), false);
  commands_.fail_all(net::status::bad_request, "the job is done");
}

void scheduler::on_abort(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const int status = exit_status_in(body);
  const auto cause = cause_or(body, "cause", "a node ended the job without saying why");
  done.ok();
  abort(status == 0 ? exit_status::failure : status, cause, now);
}

void scheduler::abort(int status, const std::string& cause, time_point now) {
  if (phase_ == phase::aborted || phase_ == phase::done) return;
  phase_ = phase::aborted;
  status_ = status;
  cause_ = cause;
  ended_at_ = now;
  emit_progress(now);
  emit_sample(now);
  events_(json_text({{"event", "abort"}, {"status", status}, {"cause", cause}}), false);
  const auto why = ended_json();
  for (auto* nodes : {&servers_, &workers_})
    for (auto& n : *nodes)
      for (auto* parked : {&n.joining, &n.watching})
        if (*parked) parked->fail(net::status::job_ended, why);
  collectives_.fail_all(net::status::job_ended, why);
  checkpoints_.fail_all(net::status::job_ended, why);
  commands_.fail_all(net::status::job_ended, why);
}

}  // namespace paracel::srv
