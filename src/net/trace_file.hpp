// SPDX-License-Identifier: BSD-3-Clause
//
// The files of a trace: one for each thread, FOLDER/<role>_<index>.<n>.trace, read by tool/launcher/traces/. Numbers
// are little-endian.
//
//     header   "PRCTRC01" | u32 bytes of the header | u32 bytes of a record, 48 | u64 records that were dropped |
//              u32 bytes of the text | u32 0 | text | zeros up to a multiple of 48 bytes
//     text     JSON: role, index, thread, pid, tid, host, boot (the id of the host's boot), cycles (whether ticks are
//              the processor's), verbs and phases (their names, by number)
//     record   core/trace.hpp
//
// Records are appended by whole writes, of at most 24 KiB, each after a `sync` that ties its ticks to two clocks. So a
// file whose process was killed ends after some write, and may be cut off within a record only when its disk is full.
#pragma once

#include <cstdint>
#include <string>

namespace paracel::net {

struct trace_options {
  std::string folder;                                  ///< made if only it is missing, with access for this user only
  std::uint64_t most_bytes = std::uint64_t{32} << 20;  ///< of each file; what follows is counted and dropped
  std::uint32_t every = 16;                            ///< core/trace.hpp, start
};

/// Traces this process: its threads that enter from now on. A folder or file that cannot be written is reported once on
/// stderr, and nothing else happens.
void start_tracing(const trace_options& options);
/// The same by the environment: PARACEL_TRACE is the folder (unset or empty: nothing happens), PARACEL_TRACE_BYTES and
/// PARACEL_TRACE_EVERY are the others. Throws: usage_error with the variable, what it is, and what is wanted.
void start_tracing_if_asked();

}  // namespace paracel::net
