// SPDX-License-Identifier: BSD-3-Clause
//
// Dynamic partitioning of an epoch's data, for programs with their parameters in the servers (SSP, ASP): each worker
// takes the next chunk when it has finished one, so stragglers take fewer, and a chunk of a worker that dies or stalls
// is reassigned.
//
//   chunk_leases leases(*this, "leases", chunks, std::chrono::seconds(10));     // on every worker
//   for (int epoch = first_iteration(); epoch < epochs; ++epoch) {
//     while (const auto lease = leases.next(epoch)) {
//       const auto delta = train_on(load(lease->chunk), leases.read("w"));
//       leases.add(*lease, "w", delta);
//       leases.complete(*lease);
//     }
//     iter_commit();
//   }
//
// Every worker must be able to read every chunk, for example from shared files. For rows that stay with their workers,
// and bit-identical results, see over_rows.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <paracel/detail/lease_table.hpp>
#include <paracel/paralg.hpp>

namespace paracel {

/// Guarantees, also with --on-worker-death wait:T and eject: when `next` has returned nothing, every chunk of the epoch
/// is done; and `add` counts each chunk exactly once per key, no matter which workers computed it and how often. A
/// chunk whose lease has expired may be computed by several workers; the first delta added to a key counts, which may
/// be one worker's in one key and another's in the next. Which worker gets which chunk differs from run to run, so
/// results do too, as under SSP.
///
/// Two update functions in the servers implement this: that of the leases' key accepts a completion only once, and that
/// of the sums keeps with each sum the numbers of the chunks it contains, from the earliest unfinished one on.
/// Checkpoints and replicas include both.
/// Thread-safety: none; on the thread of its job. Lifetime: the paralg must outlive it.
class chunk_leases {
 public:
  struct lease {
    std::size_t chunk = 0;  ///< from 0
    std::int64_t epoch = 0;
    std::int64_t number = 0;       ///< epoch * chunks + chunk
    std::int64_t done_before = 0;  ///< all chunks before this number are done
  };

  /// `key`: holds the leases, and nothing else may use it. `chunks`: per epoch; the same on every worker. `term`: how
  /// long a lease lasts, after which another worker may take the chunk; it should exceed the time that any chunk takes.
  /// Throws: config_error for 0 chunks and a term of less than 1 ms.
  chunk_leases(paralg& job, std::string key, std::size_t chunks, std::chrono::milliseconds term);

  /// A chunk of this epoch or an earlier one that is not taken, or whose lease has expired. Returns: nothing when all
  /// are done; those of the last `ahead` epochs, this one included, need only be taken, so that no worker waits for the
  /// slowest where SSP would let it continue. The last epoch needs 0. Blocks: while others hold unexpired leases on
  /// chunks that must be done. Cost: a round trip, and one every 20 ms while it waits.
  [[nodiscard]] std::optional<lease> next(std::int64_t epoch, std::int64_t ahead = 0);

  /// Adds to a sum in the servers, which starts as zeros or as what `write` has set. Returns: the new sum, or the
  /// unchanged one if it already contains this chunk. Immediate under every consistency model. Throws: type_error for
  /// another length. Cost: a round trip with the delta, and the sum back.
  std::vector<double> add(const lease& of, const std::string& key, const std::vector<double>& delta);
  /// Sets the initial value of a sum. Call it on one worker, before any worker adds.
  void write(const std::string& key, const std::vector<double>& values);
  /// As paracel_read, with the job's clock and cache.
  [[nodiscard]] std::vector<double> read(const std::string& key);

  /// Says that all deltas of this chunk have been added. Returns: false if another worker completed it earlier. Cost: a
  /// round trip.
  bool complete(const lease& of);

 private:
  [[nodiscard]] lease_table ask(const lease_request& r);

  paralg* job_;
  std::string key_;
  std::int64_t chunks_;
  std::chrono::milliseconds term_;
};

}  // namespace paracel
