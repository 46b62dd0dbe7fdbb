// SPDX-License-Identifier: BSD-3-Clause
//
// A set of ids that workers found in their parts of the input, numbered in ascending order over all of them.
//
//     worker 0 found  7 3 9        sorted and cut at splitters        worker 0 has  2 3 | numbers 0 1
//     worker 1 found  2 9 12       common to all                      worker 1 has  7 9 12 | numbers 2 3 4
//
// Splitters come from regular samples of the sorted ids (Shi and Schaeffer, "Parallel sorting by regular sampling",
// 1992), weighted by what each id costs its owner. They decide which worker has a number; the numbers themselves do not
// depend on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paracel/comm.hpp"
#include "paracel/id_list.hpp"

namespace paracel {

struct global_ids {
  std::vector<std::uint64_t> first{0, 0};  ///< worker w has numbers [first[w], first[w + 1])
  id_list own;                             ///< ids of this worker's numbers, ascending
  /// Of the ids that this worker contributed, worker w has [cut[w], cut[w + 1]). Empty: there is one worker, id i has
  /// number i.
  std::vector<std::size_t> cut;
  std::vector<std::uint32_t> place;  ///< of each id contributed, among those of the worker that has it

  [[nodiscard]] std::uint64_t total() const noexcept { return first.back(); }
};

/// Numbers the union of the workers' `ids`, ascending and unique, with `weight` of each (empty: 1 each).
/// Every worker must pass numbers, or every worker names.
/// Blocks: a collective. Cost: each id is sent to its owner and its number back, in bounded rounds; there is a second
/// copy of the ids while they are numbered.
global_ids number_ids(Comm comm, id_list ids, std::vector<std::uint32_t> weight);

/// The ids of `numbers`, which are ascending. Blocks: a collective. Cost: as above.
id_list ids_of(Comm comm, const global_ids& of, std::span<const std::uint64_t> numbers);

/// Ids [begin, end) as contiguous bytes.
void write_ids(byte_vector& to, const id_list& ids, std::size_t begin, std::size_t end);
void read_ids(std::span<const std::byte> bytes, id_list& to);

/// The ids of all workers in rank order, on every worker.
id_list gather_ids(Comm comm, const id_list& mine);

/// The worker whose range [first[w], first[w + 1]) contains the number.
std::size_t owner_of(std::span<const std::uint64_t> first, std::uint64_t number) noexcept;

}  // namespace paracel
