// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paracel::net {

/// The address of a job: its id, and where its scheduler is. Users pass it around as `--server_info`
/// and need not know that it reads `paracel1;<job, 16 hex digits>;<scheduler address>`.
struct rendezvous {
  std::uint64_t job = 0;
  std::string scheduler;

  [[nodiscard]] std::string to_string() const;
  /// Throws: usage_error that shows what was given.
  static rendezvous parse(std::string_view text);
};

/// Parses 16 hex digits. Throws: usage_error.
std::uint64_t parse_job_id(std::string_view text);

}  // namespace paracel::net
