// SPDX-License-Identifier: BSD-3-Clause
//
// Which server owns which partition.
//
// Consistent hashing with bounded loads. A server has 512 points (virtual nodes) per unit of weight on a circle of
// 2^64, the point of index i at XXH3-64 of the 8 bytes (slot, i), little-endian. Partition p is at p * 2^50 and
// belongs to the first server at or after it, clockwise, that is not full; it is full with ceil(1.05 * fair share)
// partitions. The same bound holds for each shard thread of a server: it has the partitions of one residue modulo the
// number of threads (shard_of), and all workers wait for the fullest thread. When none of the next 4,096 points has
// such a thread (servers with different numbers of threads), only the bounds of the servers count. Partitions are
// assigned in ascending order, so the table depends on the set of members alone: not on the order in which they joined,
// nor on the previous table.
//
// Benefit and cost of the bound, weight 1 each (test/unit/core/ring_test.cpp): without it the largest of 10, 20, 40
// servers would have 1.079, 1.082, 1.133 of its fair share. Because of it some partitions move that neither come from
// nor go to the server that is added or removed: at most 0.3 % when one is added to 1..40, 0.8 % when one of them is
// removed. The fifth server receives 19.4 % of the partitions.
//
// Source: Karger et al., "Consistent hashing and random trees", STOC 1997; Mirrokni, Thorup, Zadimoghaddam, "Consistent
// hashing with bounded loads", SODA 2018. There the items arrive in any order and only the insertion of an item is
// local; here the fixed order replaces history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace paracel {

struct ring_member {
  std::uint32_t slot = 0;
  double weight = 1.0;
  std::uint32_t threads = 1;
};

/// Owners of the 16,384 partitions as a pure function of the set of (slot, weight, threads).
///
/// A server that replaces a dead one uses its slot, and no key moves.
/// Thread-safety: const-concurrent.
/// Cost: a change is O(v log v + partitions) for v virtual nodes: 0.35 ms for 10 servers, 1.3 ms for 40; a lookup is
/// one load.
class ring {
 public:
  static constexpr std::uint32_t virtual_nodes = 512;
  static constexpr double load_bound = 1.05;
  static constexpr double least_weight = 1.0 / 64;
  static constexpr double greatest_weight = 64;
  static constexpr std::size_t most_members = 4096;
  static constexpr double most_weight_in_all = 8192;  // 4 M points, 64 MB: a membership message cannot demand more

  ring() = default;
  /// All members at once: the table is computed once.
  /// Throws: error as `add` does.
  explicit ring(std::span<const ring_member> members);

  /// Throws: error when the slot exists already, when the weight is outside [1/64, 64], when there is no thread, when
  /// there are 4,096 members or their total weight would exceed 8,192; the ring is unchanged.
  void add(std::uint32_t slot, double weight = 1.0, std::uint32_t threads = 1);
  /// Throws: error when the slot does not exist.
  void remove(std::uint32_t slot);

  /// The slot that owns `partition`.
  /// Throws: error when the ring has no member or the partition does not exist.
  [[nodiscard]] std::uint32_t owner(std::uint16_t partition) const { return slots_[owner_rank(partition)]; }
  /// The same as a rank, which is an index in slots().
  [[nodiscard]] std::uint32_t owner_rank(std::uint16_t partition) const;
  /// The members, in ascending order.
  [[nodiscard]] const std::vector<std::uint32_t>& slots() const noexcept { return slots_; }
  /// The owner and the next distinct servers clockwise, `n` in all or every member if there are fewer.
  /// Throws: as `owner`.
  /// Cost: O(n^2 + points passed), one allocation.
  [[nodiscard]] std::vector<std::uint32_t> replicas(std::uint16_t partition, std::size_t n) const;
  /// The same as ranks, into `chain`, whose memory is reused.
  void replica_ranks(std::uint16_t partition, std::size_t n, std::vector<std::uint32_t>& chain) const;

 private:
  struct room;
  struct point {
    std::uint64_t position;
    std::uint32_t rank;  // of the member in slots_
    friend auto operator<=>(const point&, const point&) = default;
  };

  void check(const ring_member& m) const;
  void rebuild();
  [[nodiscard]] double total_weight() const noexcept;

  std::map<std::uint32_t, ring_member> members_;  // by slot
  std::vector<std::uint32_t> slots_;              // the keys of members_
  std::vector<point> points_;                     // ascending
  std::vector<std::uint32_t> first_points_;       // by partition, the point at or after it; empty without members
  std::vector<std::uint32_t> owners_;             // by partition, a rank; empty without members
};

}  // namespace paracel
