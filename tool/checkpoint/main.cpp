// SPDX-License-Identifier: BSD-3-Clause
//
// Inspects the checkpoints of a job, for users and for prun.py:
//   paracel_checkpoint list DIR      prints a line for each checkpoint that has a manifest
//   paracel_checkpoint verify DIR    reads every byte of each; status 4 when one is damaged
//   paracel_checkpoint choose DIR [CONFIG [OVERRIDES]]
//                                    prints the newest valid one as JSON, for --resume, and what differs in the config
//
// DIR is the folder given to --checkpoint-dir, or one checkpoint in it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "config/config_sources.hpp"
#include "core/hash.hpp"
#include "core/hex.hpp"
#include "storage/checkpoint_store.hpp"
#include "storage/file_system.hpp"

namespace {

using namespace paracel;
using nlohmann::json;

constexpr std::size_t most_config_bytes = std::size_t{1} << 30;

std::string summary(const storage::checkpoint_manifest& m) {
  std::uint64_t bytes = 0;
  for (const auto& f : m.files) bytes += f.digest.bytes;
  return "clock " + std::to_string(m.clock) + "   " + std::to_string(m.workers) + " workers   " +
         std::to_string(m.servers) + " servers   " + std::to_string(m.files.size()) + " files   " +
         std::to_string(bytes) + " bytes   " + m.program + "   job " + to_hex(m.job);
}

std::vector<std::string> folders_in(const storage::file_system& disk, const std::string& folder) {
  std::vector<std::string> all;
  for (const auto clock : storage::checkpoint_clocks(disk, folder)) {
    all.push_back(folder + "/" + storage::checkpoint_folder_name(clock));
  }
  if (all.empty()) all.push_back(folder);
  return all;
}

int look(const storage::file_system& disk, const std::string& folder, bool whole) {
  int status = exit_status::ok;
  for (const auto& one : folders_in(disk, folder)) {
    try {
      const auto m = whole ? storage::verify_checkpoint(disk, one) : storage::read_manifest(disk, one);
      std::printf("%s   %s%s\n", one.c_str(), whole ? "valid   " : "", summary(m).c_str());
    } catch (const error& e) {
      std::printf("%s   broken   %s\n", one.c_str(), e.what());
      status = exit_status::data;
    }
  }
  return status;
}

/// What differs between the config of a checkpoint and this one; null if the checkpoint does not say.
json changes(const storage::checkpoint_manifest& m, const std::string& config, const std::string& overrides) {
  if (m.settings.empty() || config.empty()) return nullptr;
  const auto now = read_config(config, json::parse(overrides).get<std::vector<std::string>>());
  json all = json::array();
  for (const auto& c : config_changes(parse_config(storage::manifest_name, m.settings), now))
    all.push_back({{"key", c.key}, {"before", c.before}, {"now", c.now}});
  return all;
}

/// `config`: a config file to be compared with the checkpoint's; empty: none. `overrides`: JSON list of KEY=VALUE.
int choose(const storage::file_system& disk, const std::string& folder, const std::string& config,
           const std::string& overrides) {
  const auto c = storage::choose_checkpoint(disk, folder);
  json passed = json::array();
  for (const auto& b : c.passed_over) passed.push_back({{"folder", b.folder}, {"why", b.why}});
  std::uint64_t hash = 0;
  if (!config.empty()) {
    const auto text = disk.read(config, most_config_bytes);
    hash = hash_key({reinterpret_cast<const char*>(text.data()), text.size()});
  }
  const bool same = hash == c.manifest.config;
  const json all = {{"folder", c.folder},
                    {"clock", c.manifest.clock},
                    {"workers", c.manifest.workers},
                    {"servers", c.manifest.servers},
                    {"program", c.manifest.program},
                    {"same_config", same},
                    {"changes", changes(c.manifest, config, overrides)},
                    {"passed_over", passed}};
  std::printf("%s\n", all.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  return exit_status::ok;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc >= 3 && argc <= 5 ? argv[1] : "";
  try {
    std::string folder = what.empty() ? "" : argv[2];
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    const storage::posix_file_system disk;
    if (argc == 3 && (what == "list" || what == "verify")) return look(disk, folder, what == "verify");
    if (what == "choose") return choose(disk, folder, argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "[]");
    std::fprintf(stderr, "usage: paracel_checkpoint list|verify DIR, or choose DIR [CONFIG [OVERRIDES]]\n");
    return exit_status::usage;
  } catch (const error& e) {
    std::fprintf(stderr, "paracel_checkpoint: error: %s\n", e.what());
    return e.status();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "paracel_checkpoint: error: %s\n", e.what());
    return exit_status::failure;
  }
}
