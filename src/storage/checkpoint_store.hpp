// SPDX-License-Identifier: BSD-3-Clause
//
// The folder of a job's checkpoints:
//
//   <folder>/0000000020/manifest.json        written last: without it there is no checkpoint
//   <folder>/0000000020/server-0-1.ckpt      slot 0, thread 1
//   <folder>/0000000020/worker-3.ckpt
//
// The manifest is one line of JSON, {"checkpoint":{...},"xxh3":"<16 hex digits>"}, the hash being that of the text of
// "checkpoint" (keys sorted, no spaces). Drawn in src/storage/README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/checkpoint_file.hpp"
#include "storage/file_system.hpp"

namespace paracel::storage {

inline constexpr const char* manifest_name = "manifest.json";

struct checkpoint_entry {
  std::string name;  ///< of the file, without a folder
  checkpoint_header header;
  checkpoint_digest digest;
};

/// A file as its writer describes it to the scheduler: a JSON object.
std::string to_json(const checkpoint_entry& e);
/// Throws: error for anything that `to_json` does not write.
checkpoint_entry entry_from_json(std::string_view text, std::uint32_t clock, std::uint64_t job);

/// A user function of the servers, as it was registered.
struct checkpoint_function {
  std::uint64_t id = 0;
  std::string plugin;
  std::string symbol;  ///< with the hyper-parameters of an optimizer, in wire format
  bool filter = false;
  friend auto operator<=>(const checkpoint_function&, const checkpoint_function&) = default;
};

struct checkpoint_manifest {
  std::uint64_t job = 0;
  std::uint32_t clock = 0;  ///< iterations that every worker had finished
  std::uint32_t workers = 0;
  std::uint32_t servers = 0;
  std::string program{};
  std::uint64_t config = 0;  ///< XXH3-64 of the config file's text, 0: none
  std::string settings{};    ///< the config with what it includes and --set, as JSON; empty: none, or not recorded
  std::vector<checkpoint_function> functions{};
  std::vector<checkpoint_entry> files{};

  [[nodiscard]] std::string to_text() const;
  /// Throws: data_error "<path>: byte <offset>: what is wrong" for anything that `to_text` does not write.
  static checkpoint_manifest from_text(std::string_view text, const std::string& path);
};

/// The folder name of a clock: ten digits.
std::string checkpoint_folder_name(std::uint32_t clock);
std::string checkpoint_file_name(const checkpoint_header& header);
/// The inverse of `checkpoint_folder_name`; empty for other names.
std::optional<std::uint32_t> clock_of_folder(std::string_view name);

/// Throws: error when the system cannot read it, data_error when it is wrong.
checkpoint_manifest read_manifest(const file_system& on, const std::string& folder);
/// Reads the manifest and every file in it, and verifies every byte.
/// Throws: data_error with file and offset, error when a file cannot be read.
checkpoint_manifest verify_checkpoint(const file_system& on, const std::string& folder);

/// The clocks for which a folder exists, ascending; whether their checkpoints are complete is not checked. A missing
/// folder is an empty list.
std::vector<std::uint32_t> checkpoint_clocks(const file_system& on, const std::string& folder);

struct broken_checkpoint {
  std::string folder;
  std::string why;  ///< with file and offset
};
struct chosen_checkpoint {
  std::string folder;
  checkpoint_manifest manifest;
  std::vector<broken_checkpoint> passed_over;  ///< newer ones that are invalid, the newest first
};
/// The newest valid checkpoint. `folder`: of a job's checkpoints, or one checkpoint itself, which then is the
/// only candidate. Throws: data_error with the reason for each rejection, when none is left. Cost: reads the
/// files of the chosen one and of the newer ones.
chosen_checkpoint choose_checkpoint(const file_system& on, const std::string& folder);

/// Whether the folder has anything but files of a checkpoint: then it is not removed.
[[nodiscard]] bool has_foreign_files(const file_system& on, const std::string& folder);

/// Removes checkpoints older than the newest `keep` valid ones, except from folders with foreign files.
///
/// `known`: by clock, whether a checkpoint is valid, so that none is verified twice; newly verified ones are added. A
/// newer invalid one is kept for inspection, and not counted. Returns: the removed clocks. Throws: error when something
/// cannot be removed.
std::vector<std::uint32_t> prune_checkpoints(file_system& on, const std::string& folder, std::uint32_t keep,
                                             std::map<std::uint32_t, bool>& known);

/// Renames the folders of checkpoints of clocks later than `clock` ("0000000030.old", ".old2"), so that they are not
/// confused with those of a run that resumes from it. Returns: the new names.
std::vector<std::string> set_aside_after(file_system& on, const std::string& folder, std::uint32_t clock);

}  // namespace paracel::storage
