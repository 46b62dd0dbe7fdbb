// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "test/sim/simulation.hpp"

namespace paracel::sim {

/// Deliberate defects, to check that the simulation detects them.
enum class mutation : std::uint8_t {
  none,
  early_acknowledgement,  ///< the head considers what it sends to its replicas as acknowledged
  one_acknowledgement,    ///< what it sends to some of them
  no_memory,              ///< the record of applied requests is dropped at every new epoch, or when connections break
  no_lease,               ///< a server answers after its lease has ended
  early_read,             ///< a read does not wait until the replicas have what it returns
  lone_clock,             ///< the clock is not replicated
  hasty_clock,            ///< waits for the clock return immediately
  no_streams,             ///< servers accept messages on a new connection as if nothing had been lost with the old one
  hasty_judge,            ///< the scheduler reports silence although it was suspended itself
  bare_moves,             ///< the new servers of partitions that move do not receive them
  no_sync,                ///< checkpoint files count as safe before they are synchronised
};
std::optional<mutation> bite_named(std::string_view name);

/// Replies that the network forges, for mutations in the network: for simulation::forge.
simulation::forged forge_for(mutation b, std::span<const std::byte> frame);

}  // namespace paracel::sim
