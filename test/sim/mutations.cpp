// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/mutations.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "net/protocol.hpp"
#include "server/replication/chain_context.hpp"
#include "server/replication/replication_entries.hpp"

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

/// Whether it is a `replicate` for a clock thread.
bool is_of_clock(const net::request_view& r) {
  std::uint32_t thread = 0;
  if (r.body.size() < sizeof thread) return false;
  std::memcpy(&thread, r.body.data(), sizeof thread);
  return thread == srv::chain_hop::clock_thread;
}

/// Whether it contains changes (entry kind 0), as opposed to a question or a whole partition.
bool is_of_changes(const net::request_view& r) {
  auto entries = r.body.subspan(std::min(sizeof(std::uint32_t), r.body.size()));
  srv::replication_entry first;
  return srv::take_entry(entries, first) && first.what == srv::entry_kind::changes;
}

/// Whether it goes to one of the servers that count as having it at once: an arbitrary half of them.
bool is_other(const net::request_view& r) { return ((r.header.function * 0x9e3779b97f4a7c15ULL) >> 63U) != 0; }

}  // namespace

std::optional<mutation> bite_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, mutation>, 11> names{
      {{"early_acknowledgement", mutation::early_acknowledgement},
       {"one_acknowledgement", mutation::one_acknowledgement},
       {"no_memory", mutation::no_memory},
       {"no_lease", mutation::no_lease},
       {"early_read", mutation::early_read},
       {"lone_clock", mutation::lone_clock},
       {"hasty_clock", mutation::hasty_clock},
       {"no_streams", mutation::no_streams},
       {"hasty_judge", mutation::hasty_judge},
       {"bare_moves", mutation::bare_moves},
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
  if (b == mutation::one_acknowledgement && is_other(r) && is_of_changes(r)) return answer_to(r.header, false);
  if (b == mutation::lone_clock && is_of_clock(r)) return answer_to(r.header, true);
  return {};
}

}  // namespace paracel::sim
