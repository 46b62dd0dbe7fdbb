// SPDX-License-Identifier: BSD-3-Clause
//
// Messages of work stealing (work_stealing.hpp).
//
//     0   u64  the run of the queue: a random number
//     8   u64  the process of the sender: a random number; a replacement has another one
//     16  u32  superstep
//     20  u32  number of the computation in the superstep, from 1
//     24  u32  what (steal_message)
//     28       idle:   f64 seconds per chunk; u32 number of chunks that it still has; u32 whether it accepts chunks;
//                      u64 digest of the computation; u32 number of inputs, their u64 digests
//              grant:  u32 number of chunks; for each u32 chunk, u64 first row, u64 end, u8 flags (1: with its rows, 2:
//                      keep them), u64 bytes of the rows, the rows
//              result: u32 chunk, f64 seconds, i32 exit status (0: computed), the result or the text of the error
//              left:   nothing
#pragma once

#include <cstddef>
#include <cstdint>

#include <paracel/detail/messages.hpp>

namespace paracel {

enum class steal_message : std::uint32_t {
  idle = 1,  ///< the sender grants no more chunks; it has finished its own, or will soon, and accepts those of the
             ///< receiver, unless it says that it does not
  grant,     ///< the receiver shall compute these chunks
  result,    ///< of a chunk of the receiver
  left,      ///< the sender fails: it neither grants nor accepts chunks for the rest of the run
};

/// Distinct from that of collectives, which is 0.
inline constexpr int stealing_tag = 1;
inline constexpr std::uint64_t stealing_communicator = 1;
constexpr bool is_of_stealing(const message_address& a) noexcept {
  return a.tag == stealing_tag && a.communicator == stealing_communicator;
}

}  // namespace paracel
