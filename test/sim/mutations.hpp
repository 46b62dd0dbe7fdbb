// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "test/sim/simulation.hpp"

namespace paracel::sim {

/// How the code is broken on purpose, to see that it is noticed.
enum class mutation : std::uint8_t {
  none,
  early_acknowledgement,  ///< the head takes what it sends down a chain as answered at once
  no_memory,              ///< what has been applied is forgotten at every new epoch
  no_lease,               ///< a server answers for as long as it likes
  early_read,             ///< a read does not wait until what it shows is with the copies
  lone_clock,             ///< the clock is not sent to its copies
  hasty_clock,            ///< whoever waits for the clock may go on at once
  no_streams,             ///< servers take what comes over a new connection as if nothing were lost with the old one
  hasty_judge,            ///< the scheduler finds silence though it was stopped itself
  no_sync,                ///< files of checkpoints are taken for safe before they are
};
std::optional<mutation> bite_named(std::string_view name);

/// What the network does for those that are of the network: for simulation::forge.
simulation::forged forge_for(mutation b, std::span<const std::byte> frame);

}  // namespace paracel::sim
