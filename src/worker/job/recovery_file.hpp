// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker saves for its replacement (`--on-worker-death wait:T`): written at every commit,
// after all of the iteration's updates are acknowledged and before the clock ticks. So a saved iteration
// counts, whether or not the clock has been told.
//
//     <folder>/worker-<rank>.kept<0|1>   alternating, each   u64 bytes that follow | u64 XXH3-64 of them |
//         u64 job | u32 clock | u32 ranges | u64 from | ranges x (u64 begin, u64 end) | u32 bytes | why it cannot be
//         replaced | what worker_checkpoint writes
//     <folder>/worker-<rank>.clients     u64 job, then the ids of its clients, u64 each, written before they send
//     anything
//
// Written in place. Where all processes of the job are on one host it has to outlive a process, and not the machine, so
// there is no fsync. Where a replacement may be started on another host, each write is on disk before what it is about
// can reach anybody: a commit before its clock ticks, a client before it sends. Otherwise a crash of the host could
// undo them, and a replacement would repeat an iteration that counts already, or leave a client of the dead process
// admitted (verb `fence`). A torn file has a wrong checksum, and the other one is of the previous commit. When the disk
// is full, a short commit that says so takes the place of the one that could not be written: its iteration counts, so
// the previous one must not be resumed from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace paracel {

/// Collectives that this worker's replacement repeats: those of every setup, [begin, end), and
/// those from `from` on, which are of the iteration after the last commit.
struct replay_range {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  std::uint64_t from = 0;

  friend bool operator==(const replay_range&, const replay_range&) = default;
};

/// Thread-safety: owned by the thread that runs the algorithm.
class recovery_file {
 public:
  struct commit {
    std::uint32_t clock = 0;  ///< iterations that the worker has finished
    replay_range collectives;
    std::string cannot;  ///< why no replacement could resume from here; empty: one can
    std::vector<std::byte> parts;
  };

  /// `outlives_host`: what was written is there after a crash of this host, too. Throws: error when the files cannot be
  /// created.
  recovery_file(const std::string& folder, std::uint64_t job, std::uint32_t rank, bool outlives_host = false);
  ~recovery_file();
  recovery_file(const recovery_file&) = delete;
  recovery_file& operator=(const recovery_file&) = delete;

  /// The last commit of the previous process of this worker; empty: there was none.
  [[nodiscard]] std::optional<commit> last() const;
  /// Returns: empty, or why it could not be written; then `last` returns a commit that says why. Throws: error of the
  /// disk when not even that could be written. Cost: one write into the page cache; if it outlives the host, to the
  /// disk.
  [[nodiscard]] std::string write(const commit& c);
  /// No replacement can resume from here on. Throws: error of the disk.
  void mark(std::uint32_t clock, const std::string& cannot);

  /// The clients of all earlier processes of this worker.
  [[nodiscard]] std::vector<std::uint64_t> clients() const;
  /// Throws: error of the disk.
  void add_client(std::uint64_t id);

 private:
  [[nodiscard]] std::optional<commit> read(int fd) const;
  void put(const commit& c);
  void write_at(int fd, std::span<const std::byte> bytes, std::size_t at, const char* suffix) const;

  std::uint64_t job_;
  std::string name_;  // of the files, for messages
  bool outlives_host_;
  std::array<int, 2> files_{-1, -1};
  int clients_ = -1;
  unsigned turn_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace paracel
