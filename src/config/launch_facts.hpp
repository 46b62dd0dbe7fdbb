// SPDX-License-Identifier: BSD-3-Clause
//
// What prun.py needs from a config before it starts a job, as one line of JSON:
//
//   {"plugins": ["./libmine.so"], "standard_input": "cfg.json:2:3: key \"input\"", "program": "lr",
//    "resumable": false, "not_resumable_key": "cfg.json:3:3: key \"update_file\"", "output": "out",
//    "remarks": ["cfg.json:4:3: ..."]}
//   {"error": "cfg.json:4:3: key ...", "status": 3}
//
// A program prints it for `--check FILE` (worker/run.cpp); for one without a schema start_scheduler --print_config
// does.
#pragma once

#include <string>
#include <vector>

namespace paracel {

class config;
class config_schema;
class error;

struct launch_facts {
  std::vector<std::string> plugins;    ///< as the config names them; the servers may load them from these folders
  std::string standard_input;          ///< the first key that names it, for an error; empty: it is not read
  std::string not_resumable_key;       ///< one with which workers cannot be replaced, for an error; empty: none
  std::string output{};                ///< the folder of the results; empty: none is named
  std::vector<std::string> remarks{};  ///< on what was accepted although it was probably not meant so
};

/// The facts of a config that passes its schema `of`. Plug-ins are in keys for plug-ins, in keys whose name Paracel 0.3
/// used for them, and in texts that end in ".so"; standard input is "-" in a key for files.
[[nodiscard]] launch_facts facts_of(const config& checked, const config_schema& of);
/// The same for a config without a schema, but with "-" in any key. `overrides`: as those of read_config. Throws:
/// config_error when `file` is not a JSON object.
[[nodiscard]] launch_facts facts_of_file(const std::string& file, const std::vector<std::string>& overrides = {});

/// The line. `of`: the schema of the config, or null.
[[nodiscard]] std::string facts_json(const launch_facts& facts, const config_schema* of);
[[nodiscard]] std::string failure_json(const error& e);

}  // namespace paracel
