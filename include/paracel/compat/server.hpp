// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's server: here it is a program, bin/start_server, that prun.py starts. Custom server programs built
// around `init_thrds` can no longer be part of a job.
#pragma once

#include <paracel/error.hpp>

#include "kv_def.hpp"
#include "packer.hpp"
#include "paracel_types.hpp"
#include "proxy.hpp"
#include "utils.hpp"

namespace paracel {

/// Throws: error, always.
[[noreturn]] inline void init_thrds(const str_type& /*init_host*/, const str_type& /*init_port*/) {
  throw error("init_thrds: servers are started by prun.py, as bin/start_server; see doc/coming_from_paracel.md");
}

}  // namespace paracel
