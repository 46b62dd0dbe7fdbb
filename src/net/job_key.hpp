// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// The secret key of an encrypted job, random bytes: its tcp connections are encrypted, and a process without it is
/// not admitted (zmq_curve.hpp).
using curve_secret = std::array<std::uint8_t, 32>;

/// That of this process's job; none: it is not encrypted. Thread-safety: const-concurrent after take_job_key.
[[nodiscard]] const std::optional<curve_secret>& job_curve_secret() noexcept;

/// Reads the key of this process's job. The file that PARACEL_JOB_KEY_FILE names, readable by its owner alone, has 16
/// hex digits, a job_key, or 64, a curve_secret. Without such a name PARACEL_JOB_KEY is a job_key itself, if mpirun
/// started the process, possibly on a host that cannot see the file: where both are set the variable is ignored, so
/// that it cannot turn encryption off. Throws: usage_error. Thread-safety: before the first transport.
void take_job_key();

struct job_keys {
  std::uint64_t key = 0;
  std::optional<curve_secret> secret;
};
/// What such a file has. Throws: usage_error.
[[nodiscard]] job_keys read_job_keys(const std::string& path);

}  // namespace paracel::net
