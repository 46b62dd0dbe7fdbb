// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/bites.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "net/protocol.hpp"

namespace paracel::sim {

using net::verb;

namespace {

simulation::forged answer_to(const net::request_header& request, bool swallowed) {
  net::reply_header h;
  h.what = request.what;
  h.sequence = request.sequence;
  h.server = request.function;  // of a `replicate`: whom it is for
  h.clock = request.clock;
  net::reply_bytes head;
  net::encode(h, head);
  return {{head.begin(), head.end()}, swallowed};
}

/// Of the two kinds of `replicate`: that of the clock's state (clock_service::encode), whose numbers begin with a 1. The
/// other one has a slot or its 0 there, one byte off.
bool is_of_clock(const net::request_view& r) {
  std::uint32_t asked = 0;
  std::uint32_t format = 0;
  if (r.body.size() < 9) return false;
  std::memcpy(&asked, r.body.data() + 1, sizeof asked);
  const auto at = 5 + std::size_t{asked} * 4;
  if (at + sizeof format > r.body.size()) return false;
  std::memcpy(&format, r.body.data() + at, sizeof format);
  return format == 1;
}

/// Changes (entry kind 0), and not a question or a whole partition.
bool is_of_changes(const net::request_view& r) {
  std::uint32_t hops = 0;
  std::uint16_t what = 1;
  if (r.body.size() < 16) return false;
  std::memcpy(&hops, r.body.data(), sizeof hops);
  const auto entries = sizeof hops + std::size_t{hops} * 8;
  if (r.body.size() < entries + 4) return false;
  std::memcpy(&what, r.body.data() + entries + 2, sizeof what);
  return what == 0;
}

}  // namespace

std::optional<bite> bite_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, bite>, 9> names{{{"early_acknowledgement", bite::early_acknowledgement},
                                                                   {"no_memory", bite::no_memory},
                                                                   {"no_lease", bite::no_lease},
                                                                   {"early_read", bite::early_read},
                                                                   {"lone_clock", bite::lone_clock},
                                                                   {"hasty_clock", bite::hasty_clock},
                                                                   {"no_streams", bite::no_streams},
                                                                   {"hasty_judge", bite::hasty_judge},
                                                                   {"no_sync", bite::no_sync}}};
  for (const auto& [text, b] : names)
    if (text == name) return b;
  return std::nullopt;
}

simulation::forged forge_for(bite b, std::span<const std::byte> frame) {
  net::request_view r;
  if (net::decode(frame, 0, r) != nullptr) return {};
  const auto what = r.header.what;
  if (b == bite::no_streams) return {.stray = true};
  if (b == bite::hasty_clock && what == verb::clock_wait) return answer_to(r.header, false);
  if (what != verb::replicate) return {};
  if (b == bite::early_acknowledgement && !is_of_clock(r) && is_of_changes(r)) return answer_to(r.header, false);
  if (b == bite::lone_clock && is_of_clock(r)) return answer_to(r.header, true);
  return {};
}

}  // namespace paracel::sim
