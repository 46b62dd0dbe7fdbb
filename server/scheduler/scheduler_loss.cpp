// SPDX-License-Identifier: BSD-3-Clause
//
// Servers and workers that are lost: what is reported, and what becomes of the job.
#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

/// A user function kills a server: it is lost, and the function is blocked.
void scheduler::on_last_words(std::uint32_t slot, const json& words, time_point now) {
  if (phase_ == phase::done || !words.is_object()) return;
  auto& n = servers_[slot];
  const auto where = text_or(words, "where", "a user function");
  const auto how = text_or(words, "how", "");
  auto why = n.is(seat_state::blocked) ? n.cause : "it does not return";
  why = how.empty() ? why + ": " + where : how + " in " + where;
  if (why.size() > max_cause_bytes) why.resize(max_cause_bytes);
  n.cause.clear();
  const auto function = from_hex(text_or(words, "function", ""));
  if (function && *function != 0) {
    servers_in_job_.refuse(
        {*function, "it is no longer called: it brought down " + name(role::server, slot) + ", " + why});
  }
  on_loss(role::server, slot, why, now);
}

json scheduler::lost_event(role r, std::uint32_t index, const std::string& cause, int with_status) const {
  const auto& holder = at(r, index).holder;
  json event{{"event", "lost"},      {"role", r == role::server ? "server" : "worker"},
             {"index", index},       {"pid", holder.pid},
             {"host", holder.host},  {"cause", cause},
             {"status", with_status}};
  if (servers_in_job_.may_change()) event["epoch"] = servers_in_job_.members().epoch;
  return event;
}

void scheduler::on_loss(role r, std::uint32_t index, const std::string& why, time_point now) {
  if (vacate(r, index, why)) return;
  if (r == role::worker) return on_worker_loss(index, {.why = why}, now);
  auto& n = servers_[index];
  const std::string blocked = n.is(seat_state::blocked) ? n.cause : "";
  n.become(seat_state::lost);
  if (servers_in_job_.state(index) == server_state::gone) return;
  if (servers_in_job_.state(index) == server_state::left) {  // it had no partitions any more
    servers_in_job_.server_lost(index);
    events_(json_text({{"event", "retired"},
                       {"index", index},
                       {"pid", n.holder.pid},
                       {"host", n.holder.host},
                       {"epoch", servers_in_job_.members().epoch}}),
            false);
    return broadcast_membership();
  }
  ++counts_.losses[0];
  auto cause = name(r, index) + " lost: " + (blocked.empty() ? why : blocked);
  server_membership::verdict verdict{false};
  if (phase_ == phase::running && servers_in_job_.may_change()) verdict = servers_in_job_.server_lost(index);
  if (!verdict.why_not.empty()) cause += "; " + verdict.why_not;
  auto event = lost_event(r, index, cause, exit_status::server_lost);
  if (servers_in_job_.may_change()) event["continues"] = verdict.continues;
  if (!verdict.continues) emit_progress(now);  // before the cause
  events_(json_text(event), false);
  if (!verdict.continues) return abort(exit_status::server_lost, cause, now);
  losses_.emplace_back(now, cause);
  n.cause = cause;
  commands_.server_gone(index, cause);
  note_change(r, index);
  std::erase_if(busy_, [index](const auto& b) { return b.first.first == index; });
  checkpoints_.servers_changed("server s" + std::to_string(index) + " was lost meanwhile");
  broadcast_membership();
}

void scheduler::on_death_report(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  const auto why = cause_or(body, "why", "its process has ended");
  bool continues = true;
  if (who.what == role::worker) {
    continues = on_worker_reaped(who.index, body, why, now);
  } else {
    const auto& n = servers_[who.index];
    const bool is_known = n.is_held_by(body);
    // A report may arrive when its position already belongs to another process.
    const bool is_late =
        std::ranges::any_of(n.earlier, [&](const auto& p) { return body.value("pid", json()) == p.pid; });
    if (is_entering(who.index) && !is_known && !is_late) give_up_entering(why);
    else if (phase_ != phase::done && is_known && n.is_present()) on_loss(role::server, who.index, why, now);
  }
  const auto answer = json_text({{"continues", continues && phase_ != phase::aborted},
                                 {"epoch", servers_in_job_.members().epoch},
                                 {"cause", cause_}});
  done.answer({}, net::bytes_of(answer));
}

}  // namespace paracel::srv
