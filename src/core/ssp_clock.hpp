// SPDX-License-Identifier: BSD-3-Clause
//
// The clock of bounded staleness. The rule, as the whole framework uses it:
//
//     A worker that has finished c iterations may read while c - slowest <= s; what it then reads contains at least
//     every update of every worker's first c - s iterations, and all of its own.
//
// An infinite s is ASP: no worker waits. s = 0 is BSP: no worker is ahead of another at a read.
//
// Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013. Its
// clock c is our number of finished iterations, its "first c - s clocks" our first c - s iterations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

namespace paracel {

/// The staleness of ASP.
inline constexpr std::uint32_t unbounded_staleness = std::numeric_limits<std::uint32_t>::max();

/// What `slowest` must have reached before a worker that has finished `finished` iterations may read.
constexpr std::uint32_t needed_minimum(std::uint32_t finished, std::uint32_t staleness) noexcept {
  return finished > staleness ? finished - staleness : 0;
}

/// How many iterations each worker has finished, and the minimum of them.
///
/// A worker that has left or died no longer holds back the others. `slowest` never decreases.
/// Thread-safety: none; it is owned by the clock thread.
class ssp_clock {
 public:
  static constexpr std::uint32_t most_workers = 1U << 20;

  /// All workers have finished `begin` iterations: 0, or those of the checkpoint that the job resumes from.
  /// Throws: error above 1,048,576 workers.
  explicit ssp_clock(std::uint32_t workers, std::uint32_t begin = 0);

  /// Worker `rank` has finished `finished` iterations since the job began. A number that is not above the known one
  /// changes nothing, so a tick may be repeated or overtaken; nor does a tick of a worker that has been removed.
  /// Returns: true when `slowest` rose.
  /// Throws: error for an unknown rank; the clock is unchanged.
  /// Cost: O(log w).
  bool tick(std::uint32_t rank, std::uint32_t finished);
  /// Removes a worker. Returns: true when `slowest` rose. Throws: error for an unknown rank.
  bool remove(std::uint32_t rank);

  /// The minimum of finished iterations among the remaining workers; with none left, the greatest number seen.
  [[nodiscard]] std::uint32_t slowest() const noexcept { return slowest_; }
  /// The greatest number of finished iterations, including removed workers.
  [[nodiscard]] std::uint32_t greatest() const noexcept { return greatest_; }
  /// Throws: error for an unknown rank.
  [[nodiscard]] std::uint32_t finished(std::uint32_t rank) const;
  /// Throws: error for an unknown rank.
  [[nodiscard]] bool is_in(std::uint32_t rank) const;
  /// The initial number of workers.
  [[nodiscard]] std::uint32_t workers() const noexcept { return static_cast<std::uint32_t>(finished_.size()); }

  /// The state as bytes, little-endian: u32 1 (the format) | u32 workers | workers x u32 finished | workers x u8 is in.
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Throws: protocol_error for anything that `encode` does not write.
  [[nodiscard]] static ssp_clock decode(std::span<const std::byte> bytes);

 private:
  void check(std::uint32_t rank) const;
  bool recompute();

  std::vector<std::uint32_t> finished_;  // by rank
  std::vector<bool> in_;                 // by rank
  std::map<std::uint32_t, std::uint32_t>
      crowd_;  // number of finished iterations -> number of remaining workers that have it
  std::uint32_t slowest_ = 0;
  std::uint32_t greatest_ = 0;  // of all ranks, removed ones included
};

}  // namespace paracel
