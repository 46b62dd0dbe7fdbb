// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/chain_context.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::srv {

std::vector<server_identity> identities_in(const membership& members) {
  std::vector<server_identity> all;
  for (const auto& s : members.servers)
    if (takes_part(s.state) || s.state == server_state::left) all.push_back({s.slot, s.incarnation});
  return all;
}

replica_view::replica_view(membership m, std::uint32_t slot) : members(std::move(m)), router(members) {
  const auto at =
      std::find_if(members.servers.begin(), members.servers.end(), [&](const auto& s) { return s.slot == slot; });
  if (at == members.servers.end()) {
    throw error("slot " + std::to_string(slot) + " is not among the servers of epoch " + std::to_string(members.epoch));
  }
  self = static_cast<std::uint32_t>(at - members.servers.begin());
  owned.epoch = members.epoch;
  owned.servers = identities_in(members);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    owned.mine[p] = router.locate_partition(static_cast<std::uint16_t>(p)).server == self;
  }
}

chain_context::chain_context(const replication_chain_options& o, server_budgets& b, replicated_store& of)
    : options(o), budgets(b), store(of), index((partition_count + o.threads - 1) / o.threads) {}

}  // namespace paracel::srv
