// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's file of a checkpoint. Section 1 + k is that of its k-th paralg, in the order of creation:
//
//     u32 commits of the worker at its creation | u32 commits of its own | its saved state (saved_state)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/detail/saved_state.hpp>

#include "core/membership.hpp"
#include "storage/checkpoint_store.hpp"
#include "storage/file_system.hpp"

namespace paracel {

/// The text of an exception that a `save` has thrown, for a control message: its length is the program's.
[[nodiscard]] std::string short_text(std::string_view text);

/// The paralgs of a worker and their parts of a checkpoint.
/// Thread-safety: owned by the thread that runs the algorithm.
class worker_checkpoint {
 public:
  struct part {
    std::uint32_t begin = 0;    ///< iterations that the worker had committed when it was created
    std::uint32_t commits = 0;  ///< of its own
    bool asked = false;         ///< whether it asked for the first iteration of its loop
    std::function<void(saved_state&)> save{};
  };

  /// Reads the checkpoint that the job resumes from: this worker's file, or those of all when the number of workers
  /// differs or one had left (was ejected) and wrote none.
  /// Throws: data_error with file and offset.
  void read(const storage::file_system& disk, const checkpoint_plan& plan, std::uint32_t rank, std::uint32_t workers);

  /// `begin` of the next paralg.
  [[nodiscard]] std::uint32_t begin_of_next(std::uint32_t finished) const;
  /// A paralg is created after the worker has committed `finished` iterations. Returns: its number.
  std::size_t enter(std::uint32_t finished, std::function<void(saved_state&)> save);
  /// It asks where its loop begins. Returns: whether it has asked before.
  bool asks(std::size_t number) { return std::exchange(parts_[number].asked, true); }
  void leave(std::size_t number) { parts_[number].save = nullptr; }
  void committed(std::size_t number) { ++parts_[number].commits; }
  [[nodiscard]] const part& at(std::size_t number) const { return parts_[number]; }
  /// Whether the checkpoint has committed iterations of it.
  [[nodiscard]] bool is_resumed(std::size_t number) const;
  [[nodiscard]] saved_states states(std::size_t number) const;

  /// Saves to memory and restores from it, counting one more iteration of part `committing`. Throws: what a `save`
  /// throws; protocol_error.
  [[nodiscard]] std::vector<std::byte> to_bytes(std::size_t committing) const;
  void from_bytes(std::span<const std::byte> bytes);

  /// Throws: error of the disk, and what a `save` throws.
  [[nodiscard]] storage::checkpoint_entry write(storage::file_system& disk, const std::string& folder,
                                                const storage::checkpoint_header& h) const;

 private:
  struct kept {
    std::uint32_t begin = 0;
    std::uint32_t commits = 0;
    saved_state state;
  };
  [[nodiscard]] static std::vector<std::byte> section(const part& p, std::uint32_t commits);
  [[nodiscard]] static kept take_section(std::span<const std::byte> bytes);
  static std::vector<kept> read_file(const storage::file_system& disk, const std::string& path,
                                     const storage::checkpoint_header& expected);

  std::vector<part> parts_;
  // Only this worker's, or by rank, empty for one that had left; the first that had not left stands in for a
  // rank 0 that had. Empty: the job was not resumed.
  std::vector<std::vector<kept>> kept_;
  bool same_workers_ = false;
};

}  // namespace paracel
