// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace paracel::net {

/// The secret of this process's job; 0: it has none. A process that knows only the job's id, which is visible in
/// command lines, cannot talk to the job: each request carries id XOR key, and one without the key appears to belong to
/// another job, which every verb rejects. No reply may reveal the job decoded from a rejected request.
///
/// Thread-safety: const-concurrent. Cost: one load.
[[nodiscard]] std::uint64_t job_key() noexcept;

/// Applies to everything this process sends and receives from now on. Thread-safety: before the first request.
void set_job_key(std::uint64_t key) noexcept;

/// Reads the key from the file that PARACEL_JOB_KEY_FILE names, readable by its owner alone, or from PARACEL_JOB_KEY
/// itself, if mpirun started the process, possibly on a host that cannot see the file. 16 hex digits. Throws:
/// usage_error.
void take_job_key();

/// The same with the file given. Throws: usage_error.
[[nodiscard]] std::uint64_t read_job_key(const std::string& path);

}  // namespace paracel::net
