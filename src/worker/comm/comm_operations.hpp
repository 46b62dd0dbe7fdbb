// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives of Comm, on bytes: peer_collectives over the backend's messages and shared memory, unless the job
// survives workers' deaths; then the scheduler's (comm_backend::log). Both fold in rank order.
//
// Every rank must call the same ones in the same order. A difference in operation, root, type or length is the same
// error on every rank. Throws: that error; network_error that names a rank which is gone; job_error.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/types.hpp>

#include "worker/comm/comm_backend.hpp"

namespace paracel::comm_operations {

/// Commands that arrive while this rank waits run at once.
void barrier(comm_backend& over);
/// On return every rank holds root's bytes.
void bcast(comm_backend& over, byte_vector& data, std::size_t root);
/// Element-wise, in place, `element` being one of i32, i64, f32, f64; the same length on every rank.
void allreduce(comm_backend& over, value_tag element, std::span<std::byte> data, reduce_op op);
[[nodiscard]] std::vector<byte_vector> allgather(comm_backend& over, std::span<const std::byte> mine);
/// `blocks[r]` goes to rank r; returns what each rank sent here, in rank order.
[[nodiscard]] std::vector<byte_vector> alltoall(comm_backend& over, const std::vector<byte_vector>& blocks);

}  // namespace paracel::comm_operations
