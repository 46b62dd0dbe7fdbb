// SPDX-License-Identifier: BSD-3-Clause
//
// Places for processes that no launcher of the job starts (-m external). Such a process asks for a place before it
// joins; one that dies before the job runs gives its place back. Afterwards the rules are those of all jobs: a place is
// free for another process when the scheduler has declared its holder lost, which is then told to end, should it still
// live.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

namespace {
// From the answer to the join: an interpreter may have to load large packages first.
constexpr std::chrono::seconds kept_for{30};
}  // namespace

/// Whether a process may join there now.
bool scheduler::has_room(role r, std::uint32_t index) const noexcept {
  const auto& n = at(r, index);
  if (phase_ == phase::joining) return !n.has_joined();
  if (phase_ != phase::running) return false;
  if (r == role::worker) return n.is(seat_state::awaited);
  return is_entering(index) || servers_in_job_.state(index) == server_state::down;
}

void scheduler::reserve(const net::request_view& in, completion& done, time_point now) {
  const auto body = object_in(in);
  const auto what = text_in(body, "role");
  if (what != "server" && what != "worker") throw refusal("\"role\" must be \"server\" or \"worker\"");
  if (!options_.external) throw refusal("prun.py starts all processes of this job: want -m external");
  if (phase_ == phase::done) return refuse_ended(done);
  const auto r = what == "server" ? role::server : role::worker;
  auto& seats = r == role::server ? servers_ : workers_;
  const auto count = static_cast<std::uint32_t>(seats.size());
  const char* const key = r == role::server ? "slot" : "rank";
  process who{.pid = static_cast<int>(whole_number_in(body, "pid", 0x7fffffff)), .host = text_in(body, "host")};
  const auto is_kept = [&](const seat& n) {
    const bool own = n.reserved_for.pid == who.pid && n.reserved_for.host == who.host;
    return n.reserved_for.pid != 0 && now < n.reserved_until && !own;
  };
  std::uint32_t index = 0;
  if (body.contains(key)) {
    index = sender::in(body, options_).index;
    const auto& n = seats[index];
    if (!has_room(r, index) || is_kept(n)) {
      const auto& holder = is_kept(n) ? n.reserved_for : n.holder;
      const auto text = what + ' ' + (r == role::server ? "s" : "") + std::to_string(index) + " is pid " +
                        std::to_string(holder.pid) + " on " + holder.host;
      return done.answer({}, net::bytes_of(json_text({{"taken", text}})));
    }
  } else {
    // The one that it has already comes first.
    const auto fits = [&](std::uint32_t i) { return has_room(r, i) && !is_kept(seats[i]); };
    std::uint32_t found = count;
    for (std::uint32_t i = count; i-- > 0;) {
      if (!fits(i)) continue;
      const bool own = seats[i].reserved_for.pid == who.pid && seats[i].reserved_for.host == who.host;
      found = i;
      if (own) break;
    }
    if (found == count) {
      const auto text = "all " + std::to_string(count) + ' ' + what + "s have their processes";
      return done.answer({}, net::bytes_of(json_text({{"taken", text}})));
    }
    index = found;
  }
  seats[index].reserved_for = std::move(who);
  seats[index].reserved_until = now + kept_for;
  const auto answer = json_text(json{{"index", index},
                                     {"workers", options_.workers},
                                     {"servers", options_.servers},
                                     {"settings", json::parse(options_.settings, nullptr, false)}});
  done.answer({}, net::bytes_of(answer));
}

/// Of a job that nobody of it starts: the place of a process that is lost before others have learnt its address.
/// Returns: whether it is free again.
bool scheduler::vacate(role r, std::uint32_t index, const std::string& why) {
  if (!options_.external || phase_ != phase::joining) return false;
  if (r == role::server && servers_joined_ == options_.servers) return false;  // the servers know each other
  auto& n = at(r, index);
  events_(json_text({{"event", "vacated"},
                     {"role", r == role::server ? "server" : "worker"},
                     {"index", index},
                     {"cause", name(r, index) + " lost: " + why}}),
          false);
  if (n.joining) n.joining.fail(net::status::bad_request, "it lost its place before the job began: " + why);
  if (n.watching) n.watching.fail(net::status::conflict, "it lost its place before the job began");
  auto earlier = std::move(n.earlier);
  earlier.push_back(std::move(n.holder));
  n = {};
  n.earlier = std::move(earlier);
  --(r == role::server ? servers_joined_ : workers_joined_);
  return true;
}

}  // namespace paracel::srv
