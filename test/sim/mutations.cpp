// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/mutations.hpp"

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
  h.server = request.function;  // of a `replicate`: the receiver
  h.clock = request.clock;
  net::reply_bytes head;
  net::encode(h, head);
  return {{head.begin(), head.end()}, swallowed};
}

/// Whether it is a `replicate` for a clock thread, according to the first hop.
bool is_of_clock(const net::request_view& r) {
  std::uint32_t thread = 0;
  if (r.body.size() < 12) return false;
  std::memcpy(&thread, r.body.data() + 8, sizeof thread);
  return thread == ~std::uint32_t{0};
}

/// Whether it contains changes (entry kind 0), as opposed to a question or a whole partition.
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

std::optional<mutation> bite_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, mutation>, 9> names{
      {{"early_acknowledgement", mutation::early_acknowledgement},
       {"no_memory", mutation::no_memory},
       {"no_lease", mutation::no_lease},
       {"early_read", mutation::early_read},
       {"lone_clock", mutation::lone_clock},
       {"hasty_clock", mutation::hasty_clock},
       {"no_streams", mutation::no_streams},
       {"hasty_judge", mutation::hasty_judge},
       {"no_sync", mutation::no_sync}}};
  for (const auto& [text, b] : names)
    if (text == name) return b;
  return std::nullopt;
}

simulation::forged forge_for(mutation b, std::span<const std::byte> frame) {
  net::request_view r;
  if (net::decode(frame, 0, r) != nullptr) return {};
  const auto what = r.header.what;
  if (b == mutation::no_streams) return {.stray = true};
  if (b == mutation::hasty_clock && what == verb::clock_wait) return answer_to(r.header, false);
  if (what != verb::replicate) return {};
  if (b == mutation::early_acknowledgement && !is_of_clock(r) && is_of_changes(r)) return answer_to(r.header, false);
  if (b == mutation::lone_clock && is_of_clock(r)) return answer_to(r.header, true);
  return {};
}

}  // namespace paracel::sim
