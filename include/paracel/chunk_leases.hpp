// SPDX-License-Identifier: BSD-3-Clause
//
// Dynamic shares of an epoch's data for programs with their parameters in the servers (SSP, ASP): each worker takes the
// next chunk when it has finished one, so a slow worker takes fewer of them, and a chunk of a worker that dies or
// stalls goes to another one.
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
// Every worker must be able to read every chunk, as from files that all of them see. For rows that stay with their
// workers, and results that keep their bits: over_rows.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <paracel/lease_table.hpp>
#include <paracel/paralg.hpp>

namespace paracel {

/// Guarantees, also with --on-worker-death wait:T and eject: when `next` has returned nothing, every chunk of the epoch
/// is done; and `add` counts each chunk once in each key, whoever computed it and however often. A chunk whose lease
/// has expired may be computed by several workers. Of the deltas that they add to a key the first one counts, in one
/// key that of one worker and in another that of another one. Who gets which chunk differs from run to run, so results
/// do, as they do under SSP.
///
/// Two functions in the servers do it: one of the leases' key, which a completion changes only once, and one of the
/// sums, which have the numbers of the chunks that they contain since the earliest one that is not done. Both are in
/// checkpoints, and in replicas.
/// Thread-safety: none; on the thread of its job. Lifetime: the paralg must outlive it.
class chunk_leases {
 public:
  struct lease {
    std::size_t chunk = 0;  ///< from 0
    std::int64_t epoch = 0;
    std::int64_t number = 0;       ///< epoch * chunks + chunk
    std::int64_t done_before = 0;  ///< all chunks before this number are done
  };

  /// `key`: of the leases, used by nothing else. `chunks` of an epoch: the same at every worker. `term`: after so long
  /// another worker may take a chunk that is not done; longer than any chunk takes. Throws: config_error for 0 chunks
  /// and a term of less than 1 ms.
  chunk_leases(paralg& job, std::string key, std::size_t chunks, std::chrono::milliseconds term);

  /// A chunk of this epoch, or an earlier one whose lease has expired. Nothing: all are done; those of the last `ahead`
  /// epochs, this one included, need only be taken, so that nobody waits for the slowest one where SSP would let it go
  /// on. The last epoch needs 0. Blocks: while others work on what must be done, and their leases have not expired.
  /// Cost: a round trip, and while it waits one every 20 ms.
  [[nodiscard]] std::optional<lease> next(std::int64_t epoch, std::int64_t ahead = 0);

  /// Adds to a sum in the servers, which begins with zeros or with what `write` has set. Returns: the sum with it, or,
  /// if it has this chunk already, as it is. Immediate under every consistency model. Throws: type_error for another
  /// length. Cost: a round trip with the delta, and the sum back.
  std::vector<double> add(const lease& of, const std::string& key, const std::vector<double>& delta);
  /// What a sum begins with. By one worker, before others add.
  void write(const std::string& key, const std::vector<double>& values);
  /// As paracel_read, by the clock and the cache of the job.
  [[nodiscard]] std::vector<double> read(const std::string& key);

  /// Everything of this chunk is added. Returns: false if another worker has completed it before. Cost: a round trip.
  bool complete(const lease& of);

 private:
  [[nodiscard]] lease_table ask(const lease_request& r);

  paralg* job_;
  std::string key_;
  std::int64_t chunks_;
  std::chrono::milliseconds term_;
};

}  // namespace paracel
