// SPDX-License-Identifier: BSD-3-Clause
//
// Optimizers on keys: the state is stored next to the value, in the key store's second family of tables:
//
//     u64 family of the optimizer | u64 steps so far | states * elements numbers, aligned to 8
//
// It belongs to the optimizer and not to its hyper-parameters, so that a learning rate may change over time. Another
// optimizer, or a value of another size or type, starts from zeros.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/plugin/user_functions.hpp"
#include "server/store/key_store.hpp"

namespace paracel::srv {

/// One step of the optimizer `f` on a key. A missing key starts as zeros of the gradient's shape.
/// Returns null when it failed: `error` and `outcome` say why, and value and state are as before.
entry* step_key(key_store& keys, const loaded_update& f, std::uint64_t hash, std::string_view key,
                const value_view& gradient, std::string& error, abi::outcome& outcome);

}  // namespace paracel::srv
