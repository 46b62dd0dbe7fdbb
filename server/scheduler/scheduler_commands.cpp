// SPDX-License-Identifier: BSD-3-Clause
//
// Commands of users, and changes that workers are told of.
#include <utility>

#include <nlohmann/json.hpp>

#include "server/scheduler/control_body.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

command_board::recipients scheduler::recipients() const {
  const auto find = [this](bool is_server, std::uint32_t index) {
    command_board::recipient of;
    const auto r = is_server ? role::server : role::worker;
    const auto& n = at(r, index);
    if (!n.is_present()) of.gone = !n.cause.empty() ? n.cause : "it is " + state_of(r, index);
    if (!is_server && (n.is(seat_state::left) || n.is(seat_state::lost))) of.gone = "it has left the job";
    if (is_server && of.gone.empty()) of.address = servers_in_job_.at(index).control;
    return of;
  };
  return {static_cast<std::uint32_t>(workers_.size()), static_cast<std::uint32_t>(servers_.size()), find};
}

void scheduler::tell(const net::request_view& in, completion& done, time_point now) {
  if (phase_ == phase::joining) throw refusal("the job has not started yet");
  if (phase_ == phase::done) throw refusal("the job is done");
  commands_.tell(object_in(in), done, recipients(), now);
}

void scheduler::take_commands(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const auto who = sender::in(body, options_);
  if (who.what != role::worker) throw refusal("only workers accept commands");
  const auto& n = workers_[who.index];
  if (!n.is_present() || !n.is_held_by(body)) throw refusal("it is not worker " + std::to_string(who.index));
  commands_.take(who.index, body, done, recipients(), now);
}

/// A server or a worker died, joined, or serves again.
void scheduler::note_change(role r, std::uint32_t index) {
  const auto& n = at(r, index);
  json change{{"server", r == role::server}, {"index", index}, {"state", state_of(r, index)}, {"host", n.holder.host}};
  if (n.is_gone() && !n.cause.empty()) change["cause"] = n.cause;
  commands_.note_change(std::move(change));
}

}  // namespace paracel::srv
