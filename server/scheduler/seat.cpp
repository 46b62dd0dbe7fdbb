// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/seat.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/check.hpp"
#include "core/hex.hpp"

namespace paracel::srv {

bool may_become(seat_state from, seat_state to) noexcept {
  using enum seat_state;
  switch (from) {
    case expected:
      return to == joined || to == lost || to == left;  // lost, left: the job ends before it has begun
    case joined:
      return to == blocked || to == awaited || to == ejected || to == lost || to == left;
    case blocked:
      return to == lost || to == left;
    case awaited:
      return to == catching_up || to == lost;  // lost: no other process can replace it
    case catching_up:
      return to == joined || to == awaited || to == lost || to == left;
    case ejected:
      return false;
    case lost:
      return to == lost;  // another report, with the exit status
    case left:
      return to == lost;  // it has left and then failed
  }
  return false;
}

bool process::matches(const nlohmann::json& body) const {
  if (const auto it = body.find("pid"); it != body.end() && *it != pid) return false;
  if (const auto it = body.find("host"); it != body.end() && *it != host) return false;
  const auto it = body.find("incarnation");
  return incarnation == 0 || it == body.end() || !it->is_string() ||
         from_hex(it->get_ref<const std::string&>()) == incarnation;
}

void seat::become(seat_state next) {
  PARACEL_ASSERT(may_become(state_, next));
  state_ = next;
  was_held_ |= next == seat_state::joined || next == seat_state::catching_up;
}

bool seat::was_held_by(const nlohmann::json& body) const {
  return std::ranges::any_of(earlier, [&](const process& p) { return p.matches(body); });
}

}  // namespace paracel::srv
