// SPDX-License-Identifier: BSD-3-Clause
//
// The main of every algorithm: --help, --schema, the config, one line of error, the exit status.
#pragma once

#include <functional>
#include <string>

#include <paracel/schema.hpp>

namespace paracel::alg {

/// Runs `solve(config, server_info)` on the config that --cfg_file names, once it has passed the schema. Returns the exit
/// status; an exception becomes one line on stderr.
int run_program(int argc, char** argv, const config_schema& schema,
                const std::function<void(const config& settings, const std::string& server_info)>& solve);

}  // namespace paracel::alg
