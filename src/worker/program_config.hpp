// SPDX-License-Identifier: BSD-3-Clause
//
// What a program does with its config before it begins, in C++ (run.cpp) and in Python.
#pragma once

#include <string>
#include <vector>

#include <paracel/schema.hpp>

namespace paracel {

/// Reads and checks the config of a run, with the keys that --set replaces (`overrides`). Outside of a job says what
/// the config probably does not mean; the files that it names are inputs, which the run must not remove. Throws:
/// config_error.
config accept_config(const config_schema& schema, const std::string& file,
                     const std::vector<std::string>& overrides = {});

/// The answer to --check, a line of JSON (launch_facts.hpp). Throws: config_error.
std::string check_answer(const config_schema& schema, const std::string& file, bool check_files,
                         const std::vector<std::string>& overrides = {});

}  // namespace paracel
